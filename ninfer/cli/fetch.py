"""`ninfer fetch`: download a published artifact, resumable, verified, renamed when whole."""

import os
from collections.abc import Sequence

from ninfer.artifact.options import FetchOptions, check_fetch
from ninfer.artifact.published import ALIASES
from ninfer.cli.arguments import Parser, add_options, collect, parse
from ninfer.cli.output import byte_progress
from ninfer.log import configure


def build_parser() -> Parser:
    """The options of `ninfer fetch`."""
    parser = Parser(
        "fetch",
        "Download a published artifact, compare it with its known SHA-256 and print its path. Run "
        "again, an interrupted download goes on. HF_ENDPOINT names another hub, HF_TOKEN is sent "
        "to it when set.",
    )
    parser.add_argument("name", metavar="NAME", help=f"{', '.join(ALIASES)}, or a model/weights id")
    add_options(parser, FetchOptions)
    return parser


def main(argv: Sequence[str]) -> int:
    """Fetch, then print the path on stdout."""
    namespace = parse(build_parser(), argv)
    options = collect(namespace, FetchOptions)
    check_fetch(options)
    configure("info")

    from ninfer.artifact.fetch import Hub, fetch

    hub = Hub(os.environ.get("HF_ENDPOINT"), os.environ.get("HF_TOKEN"), options.transfer)
    with byte_progress("fetching") as progress:
        path = fetch(
            namespace.name, options.directory, progress, revision=options.revision, hub=hub
        )
    print(path)
    return 0
