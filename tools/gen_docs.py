"""Writes the documentation pages that describe the tree, or with `--check` says which are stale.

Pages do not depend on machine, terminal width or Python version.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from tools import memory_pages, performance_page, reports, runtime_pages, source_pages

ROOT = Path(__file__).resolve().parent.parent

# A generator returns None while the part that it describes does not exist.
PAGES: dict[str, Callable[[Path], str | None]] = {
    "docs/architecture.md": source_pages.architecture,
    "docs/cli.md": runtime_pages.cli,
    "docs/errors.md": source_pages.errors,
    "docs/memory.md": memory_pages.memory,
    "docs/ops.md": source_pages.ops,
    "docs/options.md": runtime_pages.options,
    "docs/performance.md": performance_page.performance,
    "docs/reports.md": reports.reports,
    "docs/variables.md": runtime_pages.variables,
}


def stale_pages(root: Path) -> dict[str, str | None]:
    """Path -> wanted text for each page whose file on disk differs; None means no such page."""
    stale = {}
    for path, generate in PAGES.items():
        file = root / path
        present = file.read_text(encoding="utf-8") if file.exists() else None
        wanted = generate(root)
        if wanted != present:
            stale[path] = wanted
    return stale


def main(argv: list[str] | None = None) -> int:
    """Write the stale pages, or only name them with `--check` (exit status 1 if there are any)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if stale")
    check = parser.parse_args(argv).check
    stale = stale_pages(ROOT)
    for path, text in stale.items():
        print(f"{path} is stale; run `make docs`" if check else f"wrote {path}")
        if check:
            continue
        if text is None:
            (ROOT / path).unlink()
        else:
            (ROOT / path).write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
