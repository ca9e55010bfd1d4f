"""`ninfer convert`: make an artifact from a Hugging Face checkpoint."""

import sys
from collections.abc import Sequence

from ninfer.cli.arguments import Parser, add_options, collect, parse
from ninfer.cli.output import byte_progress
from ninfer.convert.options import ConvertOptions, check_convert


def build_parser() -> Parser:
    """The options of `ninfer convert`."""
    parser = Parser(
        "convert",
        "Make an artifact from a checkpoint in Hugging Face form. A run that was stopped leaves "
        "OUTPUT.partial and a journal; the same command goes on from there. The file gets its name "
        "when it was read back and compared with its sources.",
    )
    add_options(parser, ConvertOptions)
    return parser


def main(argv: Sequence[str]) -> int:
    """Convert, or print what would be written."""
    options = collect(parse(build_parser(), argv), ConvertOptions)
    check_convert(options)
    if options.dry_run:
        return _dry_run(options)

    from ninfer.convert import convert

    with byte_progress("converting") as progress:
        done = convert(options, progress)
    for name in done.unused:
        print(f"not used: {name}", file=sys.stderr)
    text = f"{options.output}: {done.bytes:,} bytes, {done.objects:,} objects"
    if done.resumed:
        text += f", {done.resumed:,} of them from an earlier run"
    print(text, file=sys.stderr)
    return 0


def _dry_run(options: ConvertOptions) -> int:
    from ninfer.artifact import describe
    from ninfer.convert import dry_run

    print("\n".join(describe(dry_run(options)).lines()))
    return 0
