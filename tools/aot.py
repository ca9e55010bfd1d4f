"""Compile the Triton kernels of models ahead of time, for any architecture, without a GPU.

    python -m tools.aot build/triton --arch 90 --jobs 2
    TRITON_CACHE_DIR=build/triton ninfer run ...

Fills a cache that the same Triton build uses on a card. A cache that was moved is made valid by
`python -m tools.aot FOLDER --relocate`. Exits 1 when a kernel does not compile.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ninfer.kits.compile import compile_models
from ninfer.kits.launches import TOKENS, models
from ninfer.kits.triton_cache import kernel_count, relocate
from ninfer.ops.aot import Compiled
from ninfer.ops.tiers import ARCHITECTURES


def main(argv: Sequence[str]) -> int:
    """Compile or relocate as asked; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tools.aot", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", type=int, nargs="+", default=list(ARCHITECTURES))
    parser.add_argument("--model", nargs="+", default=list(models()), choices=models())
    parser.add_argument("--tokens", type=int, nargs="+", default=list(TOKENS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--every", type=int, default=1, help="N: only each N-th launch of a list")
    parser.add_argument("--rounds", action="store_true", help="what decode rounds launch instead")
    parser.add_argument("--relocate", action="store_true")
    options = parser.parse_args(argv)
    if options.relocate:
        print(f"{relocate(options.folder)} group files changed")
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    found = compile_models(
        str(options.folder.resolve()),
        options.arch,
        options.model,
        () if options.rounds else options.tokens,
        options.jobs,
        every=options.every,
    )
    return report(found, options.folder, time.perf_counter() - start)


def report(found: Sequence[Compiled], folder: Path, seconds: float) -> int:
    """Print what was compiled; 1 when something was not."""
    for architecture in sorted({record.architecture for record in found}):
        records = [record for record in found if record.architecture == architecture]
        bad = [record for record in records if record.error]
        print(f"sm_{architecture}: {len(records)} launches, {len(bad)} failures")
        for record in bad:
            print(f"  {record.kernel}: {record.error}")
    print(f"{kernel_count(folder)} kernels in {folder}, {seconds:.0f} s")
    return int(any(record.error for record in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
