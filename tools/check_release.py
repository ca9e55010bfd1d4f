"""Checks that the newest entry of CHANGELOG.md is the package's version."""

import re
import sys
from pathlib import Path

from ninfer.version import VERSION

ROOT = Path(__file__).resolve().parent.parent
ENTRY = re.compile(r"^## \[(?P<version>\d+\.\d+\.\d+)\] - (?P<date>\d{4}-\d{2}-\d{2}|unreleased)$")


def newest_entry(changelog: str) -> str:
    """Version of the first `## [x.y.z] - date` heading; raises ValueError if there is none."""
    for line in changelog.splitlines():
        if line.startswith("## "):
            match = ENTRY.match(line)
            if match is None:
                raise ValueError(f"{line!r} is not '## [x.y.z] - YYYY-MM-DD' or '- unreleased'")
            return match["version"]
    raise ValueError("no entry")


def main() -> int:
    """Compare and report; 1 when they differ."""
    newest = newest_entry((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    if newest == VERSION:
        return 0
    print(f"CHANGELOG.md starts with {newest}, but ninfer/version.py says {VERSION}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
