"""`ninfer selftest`: every op of this machine against its reference, as a page to send."""

import json
from collections.abc import Sequence

from ninfer.cli.arguments import Parser, add_options, collect, parse
from ninfer.selftest.options import SelftestOptions


def build_parser() -> Parser:
    """The options of `ninfer selftest`."""
    parser = Parser(
        "selftest",
        "Run every op by every form that this machine has and compare with the float64 reference. "
        "Exit status 1 when one is wrong.",
    )
    add_options(parser, SelftestOptions)
    return parser


def main(argv: Sequence[str]) -> int:
    """Print a line for each op and form as it comes, or one JSON object."""
    options = collect(parse(build_parser(), argv), SelftestOptions)

    from ninfer.selftest.page import as_json, page
    from ninfer.selftest.routes import routes, this_device

    device = this_device()
    found = []
    for verdict in routes(device, options.op, options.seed):
        found.append(verdict)
        if not options.json:
            print(
                f"{'WRONG' if verdict.wrong else 'ok':5} {verdict.op} by {verdict.form} in "
                f"{verdict.dtype}: {verdict.cases} cases, margin {verdict.margin:.3f}, "
                f"{verdict.refused} not served",
                *verdict.wrong,
                sep="\n      ",
                flush=True,
            )
    if options.json:
        print(json.dumps(as_json(device, found)))
    if options.page is not None:
        options.page.write_text(page(device, found), encoding="utf-8")
    return int(any(verdict.wrong for verdict in found))
