"""`ninfer describe`: what an artifact holds, read from its directory only."""

import json
from collections.abc import Sequence

from ninfer.artifact import describe, read_header
from ninfer.cli.arguments import Parser, add_artifact, parse


def build_parser() -> Parser:
    """The options of `ninfer describe`."""
    parser = Parser("describe", "List what an artifact holds, from its directory alone.")
    add_artifact(parser, "FILE")
    parser.add_argument(
        "--objects", action="store_true", help="also list every object (default: off)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object (default: off)")
    return parser


def main(argv: Sequence[str]) -> int:
    """Print the table or the JSON object."""
    namespace = parse(build_parser(), argv)
    summary = describe(read_header(namespace.artifact))
    if namespace.json:
        print(json.dumps(summary.as_dict(), ensure_ascii=False))
    else:
        print("\n".join(summary.lines(objects=namespace.objects)))
    return 0
