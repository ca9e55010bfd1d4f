"""`ninfer synth`: write an artifact with random weights, small or of full size."""

import sys
from collections.abc import Sequence

from ninfer.cli.arguments import Parser, add_options, collect, parse
from ninfer.cli.output import byte_progress
from ninfer.convert.options import SynthOptions, check_synth


def build_parser() -> Parser:
    """The options of `ninfer synth`."""
    parser = Parser(
        "synth",
        "Write a whole, valid artifact of a relative of a model, small or of full size. Its "
        "weights are random, so its text means nothing; it is for trying, testing and timing "
        "everything else.",
    )
    add_options(parser, SynthOptions)
    return parser


def main(argv: Sequence[str]) -> int:
    """Write the file and say where it is."""
    options = collect(parse(build_parser(), argv), SynthOptions)
    check_synth(options)
    overrides = options.overrides()

    from ninfer.convert import synthesise

    assert options.output is not None
    with byte_progress("writing") as progress:
        synthesise(
            options.output,
            like=options.like,
            scale=options.scale,
            drafter=options.drafter,
            overrides=overrides,
            seed=options.seed,
            progress=progress,
        )
    size = options.output.stat().st_size
    print(f"{options.output}: {size:,} bytes, random weights", file=sys.stderr)
    return 0
