"""`ninfer verify`: one line for each thing checked in a file, and the verdict as exit status."""

from collections.abc import Sequence

from ninfer.artifact.options import VerifyOptions, check_verify
from ninfer.cli.arguments import Parser, add_artifact, add_options, collect, parse
from ninfer.cli.output import byte_progress


def build_parser() -> Parser:
    """The options of `ninfer verify`."""
    parser = Parser(
        "verify",
        "Check a file: structure, the inventory of its model, values, stored words of sampled rows "
        "and, when its size is that of a published artifact, its SHA-256. Exit status 1 when "
        "anything is bad.",
    )
    add_artifact(parser, "FILE")
    add_options(parser, VerifyOptions)
    return parser


def main(argv: Sequence[str]) -> int:
    """Print the findings as they come."""
    namespace = parse(build_parser(), argv)
    options = collect(namespace, VerifyOptions)
    check_verify(options)

    from ninfer.engine.verify import verify

    sound = True
    with byte_progress("verifying") as progress:
        for finding in verify(namespace.artifact, options, progress):
            sound = sound and finding.verdict != "bad"
            print(finding, flush=True)
    return 0 if sound else 1
