"""`ninfer kit-pack`: the kit that a machine built, brought here and checked."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ninfer.cli.arguments import Parser, parse
from ninfer.cli.fleet.opening import add_on, box_on, open_fleet
from ninfer.cli.output import byte_progress
from ninfer.fleet.building import built_kit
from ninfer.fleet.packing import bring_home
from ninfer.kits.install import verify


def build_parser() -> Parser:
    """The options of `ninfer kit-pack`."""
    parser = Parser(
        "kit-pack",
        "Download the kit that 'ninfer build' made on the machine, and check every byte of it. An "
        "interrupted download goes on.",
    )
    add_on(parser)
    _add_output(parser)
    return parser


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("dist"),
        metavar="DIR",
        help="folder for it (default: dist)",
    )


def main(argv: Sequence[str]) -> int:
    """Download and verify; path, bytes and digest are on stdout, with what to set for others."""
    namespace = parse(build_parser(), argv)
    with open_fleet(ssh=True) as fleet, box_on(fleet, namespace.on) as (row, box):
        kit = built_kit(box, row.name)
        with byte_progress("downloading") as progress:
            path = bring_home(
                box,
                row.name,
                kit,
                namespace.output,
                lambda done, total: progress(Path(kit.path).name, done, total),
            )
    manifest = verify(path, kit.sha256)
    print(f"{path}: {kit.size:,} bytes, {len(manifest.files)} files, all as listed")
    print(f"publish it, then set NINFER_KIT_URL to its address and NINFER_KIT_SHA256={kit.sha256}")
    return 0
