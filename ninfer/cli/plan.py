"""`ninfer plan`: what fits into a device's memory, answered before any weight is loaded."""

import json
from collections.abc import Sequence

from ninfer.cli.arguments import Parser, add_artifact, add_options, collect, parse
from ninfer.engine.options import EngineOptions, check_sizes
from ninfer.engine.plan_options import PlanOptions
from ninfer.engine.sizes import size_of
from ninfer.log import configure


def build_parser() -> Parser:
    """The options of `ninfer plan`: those of the engine, and the memory to plan for."""
    parser = Parser(
        "plan",
        "Tell whether a model fits into a device's memory with the given engine options, what "
        "gives way, by how many bytes it misses and what would fit. Loads no weights. Exit status "
        "1 when it does not fit.",
    )
    add_artifact(parser, "ARTIFACT")
    add_options(parser.add_argument_group("plan"), PlanOptions)
    add_options(parser.add_argument_group("engine"), EngineOptions)
    return parser


def main(argv: Sequence[str]) -> int:
    """Print the table or the JSON object."""
    namespace = parse(build_parser(), argv)
    asked = collect(namespace, PlanOptions)
    options = collect(namespace, EngineOptions, artifact=namespace.artifact)
    check_sizes(options)
    memory = size_of("--device-memory", asked.device_memory) if asked.device_memory else None
    configure("warning")

    # Importing torch takes a second; options are checked before.
    from ninfer.engine.plan_report import plan_dict, plan_lines
    from ninfer.engine.resolve import plan_artifact

    plan, model, identity = plan_artifact(options, memory)
    if asked.json:
        print(json.dumps(plan_dict(plan, model, identity), ensure_ascii=False))
    else:
        print("\n".join(plan_lines(plan, model, identity)))
    return 0 if plan.memory.fits else 1
