"""`ninfer doctor`: what stands in the way on this machine, each finding with its fix."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from ninfer.cli.arguments import Parser, add_options, collect, parse, path_of
from ninfer.selftest.options import DoctorOptions, check_doctor


def build_parser() -> Parser:
    """The options of `ninfer doctor`."""
    parser = Parser(
        "doctor",
        "Look at driver, cards, packages, compilers, caches, kit, disk, port and artifacts. Exit "
        "status 1 when something does not work.",
    )
    parser.add_argument(
        "artifacts",
        nargs="*",
        type=lambda text: path_of("ARTIFACT", text),
        metavar="ARTIFACT",
        help="artifact to check as well",
    )
    add_options(parser, DoctorOptions)
    return parser


def main(argv: Sequence[str]) -> int:
    """Print findings as they come, or one JSON array."""
    namespace = parse(build_parser(), argv)
    options = collect(namespace, DoctorOptions)
    check_doctor(options)

    from ninfer.selftest.bundle import write_bundle
    from ninfer.selftest.doctor import examine

    report = []
    for symptom in examine(options, namespace.artifacts):
        report.append(symptom)
        if not options.json:
            print(symptom, flush=True)
    if options.json:
        print(json.dumps([asdict(symptom) for symptom in report], ensure_ascii=False))
    if options.bundle is not None:
        write_bundle(options.bundle, report)
    return int(any(symptom.verdict == "bad" for symptom in report))
