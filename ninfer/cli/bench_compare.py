"""`ninfer bench compare`: two files of stored responses, paired by question, seed and sampling."""

import json
from collections.abc import Sequence

from ninfer.audit import CompareOptions, judge_all, read_responses
from ninfer.audit.compare import compare
from ninfer.audit.gains import COLUMNS
from ninfer.audit.options import check_report
from ninfer.audit.report import comparison_page
from ninfer.cli.arguments import Parser, add_options, collect, parse, path_of
from ninfer.cli.output import print_table, write_text


def build_parser() -> Parser:
    """The options of `ninfer bench compare`."""
    parser = Parser(
        "bench compare",
        "Compare two files of responses to the same questions. Rates are compared over pairs of "
        "which both are usable; what was usable in one only is counted apart.",
    )
    for name in ("first", "second"):
        parser.add_argument(
            name,
            type=lambda text: path_of("FILE", text),
            metavar=name.upper(),
            help=f"{name} file: anything that 'ninfer audit' reads",
        )
    add_options(parser, CompareOptions)
    return parser


def main(argv: Sequence[str]) -> int:
    """Compare two files."""
    namespace = parse(build_parser(), argv)
    options = collect(namespace, CompareOptions)
    check_report(options)
    paths = (namespace.first, namespace.second)
    first, second = (judge_all(read_responses(p), run_code=options.run_code) for p in paths)
    same = paths[0].stem == paths[1].stem
    names = ("first", "second") if same else (paths[0].stem, paths[1].stem)
    found = compare(first, second, names, options.by)
    if options.json:
        print(json.dumps(found.to_json(), indent=2))
    else:
        print_table(COLUMNS, [gain.cells() for gain in found.gains])
        if found.alone:
            print(f"{found.alone} responses have no partner in the other file")
        print(found.sentence)
    if options.html is not None:
        write_text("--html", options.html, comparison_page(found))
    return 0
