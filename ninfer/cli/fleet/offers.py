"""`ninfer offers`: what is for rent now, best first, and what was left out and why."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from ninfer.cli.arguments import Parser, add_options, collect, parse
from ninfer.cli.fleet.opening import VAST, add_json, open_fleet
from ninfer.cli.output import print_table
from ninfer.fleet.creating import look_for
from ninfer.fleet.offers import Choice, session_cost
from ninfer.fleet.options import CapOptions, OfferOptions, caps_of, need_of
from ninfer.fleet.provider import Need, Offer
from ninfer.fleet.sky import SKY

_MOST_ROWS = 10


def build_parser() -> Parser:
    """The options of `ninfer offers`."""
    parser = Parser("offers", "List machines for rent that pass every criterion, best first.")
    text = "where from; sky: other clouds, through SkyPilot (default: vast)"
    parser.add_argument("--provider", choices=(VAST, SKY), default=VAST, help=text)
    add_options(parser, OfferOptions)
    add_options(parser, CapOptions)
    add_json(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    """Print up to ten offers; exit status 0 also when there is none."""
    namespace = parse(build_parser(), argv)
    wanted = collect(namespace, OfferOptions)
    with open_fleet(own=SKY if namespace.provider == SKY else "") as fleet:
        caps = caps_of(fleet.settings, collect(namespace, CapOptions), wanted.max_price)
        need = need_of(fleet.settings, wanted, caps)
        choice = look_for(fleet, fleet.provider(namespace.provider), need)
    if namespace.json:
        print(json.dumps(_data(choice, need)))
        return 0
    if choice.passed:
        columns = (
            "offer",
            "card",
            "$/h",
            "$/h stopped",
            "Mbit/s",
            "$/GB",
            "reliable",
            "$",
            "place",
        )
        print_table(columns, [_row(offer, need) for offer in choice.passed[:_MOST_ROWS]])
    else:
        print("no offer passes")
    removed = ", ".join(f"{name} {count}" for name, count in choice.counts().items())
    print(
        f"$ is for {need.hours:g} h with downloads; left out: {removed or 'none'}", file=sys.stderr
    )
    return 0


def _row(offer: Offer, need: Need) -> tuple[str, ...]:
    return (
        offer.id,
        offer.gpu,
        f"{offer.price:.4f}",
        f"{offer.disk_price:.4f}",
        f"{offer.inet_down:.0f}",
        f"{offer.down_cost:.4f}",
        f"{offer.reliability:.4f}",
        f"{session_cost(offer, need):.2f}",
        offer.place,
    )


def _data(choice: Choice, need: Need) -> dict[str, object]:
    passed = [{**asdict(o), "session_cost": session_cost(o, need)} for o in choice.passed]
    failed = [{"id": offer.id, "reason": reason} for offer, reason in choice.failed]
    return {"offers": passed, "left_out": failed}
