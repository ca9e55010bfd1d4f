"""`ninfer plan`: what fits into a device's memory, answered before any weight is loaded."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ninfer.artifact.packaged import NAMES
from ninfer.artifact.published import ALIASES
from ninfer.cli.arguments import Parser, add_options, collect, given_names, parse
from ninfer.engine.options import EngineOptions, check_sizes
from ninfer.engine.plan_options import PlanOptions
from ninfer.engine.sizes import size_of
from ninfer.log import configure

_ARTIFACT: Final = (
    f".ninfer file; {' or '.join(NAMES)}: that of the package; {', '.join(ALIASES)}: a published "
    "one by its built-in sizes, without a file (default: all published ones, as --auto)"
)


def build_parser() -> Parser:
    """The options of `ninfer plan`: those of the engine, and the memory to plan for."""
    parser = Parser(
        "plan",
        "Tell whether a model fits into a device's memory with the given engine options, what "
        "gives way, by how many bytes it misses and what would fit. With --auto or without an "
        "artifact, choose the options that are not given. Loads no weights. Exit status 1 when "
        "nothing fits.",
    )
    parser.add_argument("artifact", nargs="?", metavar="ARTIFACT", help=_ARTIFACT)
    add_options(parser.add_argument_group("plan"), PlanOptions)
    add_options(parser.add_argument_group("engine"), EngineOptions)
    return parser


def main(argv: Sequence[str]) -> int:
    """Print the table or the JSON object."""
    namespace = parse(build_parser(), argv)
    asked = collect(namespace, PlanOptions)
    options = collect(namespace, EngineOptions, artifact=Path(namespace.artifact or "all"))
    given = given_names(namespace, EngineOptions)
    check_sizes(options)
    memory = size_of("--device-memory", asked.device_memory) if asked.device_memory else None
    configure("warning")

    # Importing torch takes a second; options are checked before.
    from ninfer.engine.card_plan import plan_all, plan_one, target_of
    from ninfer.engine.plan_report import (
        cards_dict,
        cards_lines,
        chosen_dict,
        chosen_lines,
    )

    target = target_of(options, asked.card, memory)
    if namespace.artifact is None:
        found = plan_all(options, target, given)
        shown = cards_dict(target, found) if asked.json else cards_lines(target, found)
        fits = any(one.plan.memory.fits for one in found)
    else:
        one = plan_one(options, target, given if asked.auto else None)
        shown = chosen_dict(target, one) if asked.json else chosen_lines(target, one)
        fits = one.plan.memory.fits
    print(json.dumps(shown, ensure_ascii=False) if asked.json else "\n".join(shown))
    return 0 if fits else 1
