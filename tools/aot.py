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
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

# Workers have one thread each; this has to stand in the environment before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("TRITON_INTERPRET", None)

from ninfer.kits.launches import TOKENS, model_calls, models
from ninfer.kits.triton_cache import kernel_count, relocate
from ninfer.ops.aot import Compiled, compile_calls, use_cache
from ninfer.ops.dispatch import set_backend
from ninfer.ops.tiers import ARCHITECTURES

Task = tuple[str, int, str, tuple[int, ...], int, int]


def compile_share(task: Task) -> list[Compiled]:
    """Every `count`-th call of a model's list, from `first` on, for one architecture."""
    folder, architecture, model, tokens, first, count = task
    use_cache(folder)
    set_backend("triton", architecture)
    return compile_calls(model_calls(model, tokens)[first::count], [architecture])


def main(argv: Sequence[str]) -> int:
    """Compile or relocate as asked; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tools.aot", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", type=int, nargs="+", default=list(ARCHITECTURES))
    parser.add_argument("--model", nargs="+", default=list(models()), choices=models())
    parser.add_argument("--tokens", type=int, nargs="+", default=list(TOKENS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--every", type=int, default=1, help="N: only each N-th launch of a list")
    parser.add_argument("--relocate", action="store_true")
    options = parser.parse_args(argv)
    if options.relocate:
        print(f"{relocate(options.folder)} group files changed")
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    # Few architectures on many cores: shares of one list. Many on few: whole lists.
    shares = max(1, -(-options.jobs // (len(options.arch) * len(options.model))))
    folder, tokens, step = str(options.folder.resolve()), tuple(options.tokens), options.every
    tasks = [
        (folder, architecture, model, tokens, share * step, shares * step)
        for architecture in options.arch
        for model in options.model
        for share in range(shares)
    ]
    start = time.perf_counter()
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        found = [record for records in pool.map(compile_share, tasks) for record in records]
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
