"""Compiles the CUDA kernels for given architectures into a folder, without a card.

The folder can be carried to another machine and named there by NINFER_KERNELS.
"""

import argparse
import time
from pathlib import Path

from ninfer.ops.linear.fast_plan import ARCHITECTURES
from ninfer.ops.linear.kit import compile_kit, programs


def main() -> None:
    """Compile what the folder lacks and say how much that was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--architecture", type=int, choices=ARCHITECTURES, action="append")
    chosen = parser.parse_args()
    for architecture in chosen.architecture or ARCHITECTURES:
        start = time.perf_counter()
        count = compile_kit(architecture, chosen.folder)
        seconds = time.perf_counter() - start
        total = len(programs(architecture))
        print(f"sm_{architecture}: {count} of {total} kernels compiled in {seconds:.0f} s")


if __name__ == "__main__":
    main()
