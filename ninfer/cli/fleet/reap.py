"""`ninfer reap`: end what bills without reason."""

import json
from collections.abc import Sequence

from ninfer.cli.arguments import Parser, parse
from ninfer.cli.fleet.opening import add_json, open_fleet
from ninfer.errors import OutcomeUnknownError
from ninfer.fleet.reaping import reap


def build_parser() -> Parser:
    """The options of `ninfer reap`."""
    parser = Parser(
        "reap",
        "End machines whose command died, whose end is not confirmed, whose lifetime or budget is "
        "over, or that nobody recorded. Fit for a timer.",
    )
    parser.add_argument(
        "--foreign",
        action="store_true",
        help="also end machines that ninfer rented from other records, on this account",
    )
    add_json(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    """End them; exit status 12 when one may bill on."""
    namespace = parse(build_parser(), argv)
    ended: list[str] = []
    foreign: list[str] = []
    failed: list[tuple[str, str]] = []
    with open_fleet() as fleet:
        if not fleet.providers:
            fleet.provider("vast")  # raises: what cannot be asked cannot be ended
        for provider in fleet.providers.values():
            done = reap(fleet, provider, foreign=namespace.foreign)
            ended += done.ended
            foreign += [f"{shot.id} ({shot.label})" for shot in done.foreign]
            failed += done.failed
    if namespace.json:
        print(json.dumps({"ended": ended, "foreign": foreign, "failed": failed}))
    else:
        for text in ended:
            print(f"ended {text}")
        for text in foreign:
            print(f"left to its own records: {text}; --foreign ends it")
        if not ended and not failed:
            print("nothing to end")
    if failed:
        raise OutcomeUnknownError("; ".join(text for _, text in failed))
    return 0
