"""Whether the package and its extras can be installed together: pip resolves, installs nothing.

What resolves together also does in parts, so one resolution shows all. `APART` lists extras that
are kept out of it on purpose; each of them must resolve with the base alone.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
# Extra -> why it may not be installed with the others.
APART: Final[dict[str, str]] = {}
# What users are promised to have together; one that is no extra needs nothing beyond the base.
PROMISED: Final = ("fleet", "evals", "cluster")
# For developers, with pinned tools; `make install` resolves it every time.
_OURS: Final = frozenset({"dev"})
_SECONDS: Final = 600
_CONFLICTS: Final = (
    "ResolutionImpossible",
    "conflicting dependencies",
    "ResolutionTooDeep",
    "No matching distribution found",
)
# pip's words for a package of which the index shows nothing: a wrong name, or no index.
_NOTHING: Final = "(from versions: none)"


class Outcome(StrEnum):
    """What a resolution showed."""

    RESOLVED = "resolves"
    CONFLICT = "does not resolve"
    UNREACHABLE = "is not known: the package index cannot be reached"


@dataclass(frozen=True, slots=True)
class Resolution:
    """One set of extras; `packages` counts what would be installed, `said` is pip's last word."""

    extras: tuple[str, ...]
    outcome: Outcome
    packages: int = 0
    said: str = ""

    def __str__(self) -> str:
        name = f"[{','.join(self.extras)}]" if self.extras else "base"
        more = f" ({self.packages} packages)" if self.packages else f": {self.said}"
        return f"{name} {self.outcome}{more}"


def extras_of(project: Path) -> tuple[str, ...]:
    """The extras of a pyproject.toml that are for users."""
    data = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    return tuple(sorted(set(data["project"].get("optional-dependencies", {})) - _OURS))


def sets_of(extras: Sequence[str], apart: Sequence[str]) -> list[tuple[str, ...]]:
    """What has to resolve: all but those apart, and each of those alone."""
    together = tuple(extra for extra in extras if extra not in apart)
    return [together, *((extra,) for extra in extras if extra in apart)]


def resolve(project: Path, extras: Sequence[str], arguments: Sequence[str] = ()) -> Resolution:
    """Ask pip for a set of versions that satisfies the project with these extras."""
    wanted = tuple(extras)
    target = f"{project}[{','.join(wanted)}]" if wanted else str(project)
    packages, said = _ask_pip(target, arguments)
    if packages:
        return Resolution(wanted, Outcome.RESOLVED, packages)
    if _NOTHING in said and not _ask_pip("pip", arguments)[0]:
        return Resolution(wanted, Outcome.UNREACHABLE, said=said)
    assert any(word in said for word in _CONFLICTS), said
    return Resolution(wanted, Outcome.CONFLICT, said=said)


def _ask_pip(target: str, arguments: Sequence[str]) -> tuple[int, str]:
    """How many packages pip would install, and its last words; 0 when it would not."""
    with tempfile.TemporaryDirectory(prefix="ninfer-extras-") as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        command += ["--quiet", "--report", str(report), *arguments, target]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            return 0, f"no end after {_SECONDS} s {_NOTHING}"
        if done.returncode == 0:
            return len(json.loads(report.read_text(encoding="utf-8"))["install"]), ""
        return 0, " ".join(done.stderr.split())[-600:]


def main() -> int:
    """Resolve every set; exit status 1 for a conflict. An index that cannot be reached is told."""
    extras = extras_of(ROOT)
    constraints = ["-c", str(ROOT / "constraints.txt")]
    outcomes = []
    for wanted in sets_of(extras, tuple(APART)):
        found = resolve(ROOT, wanted, constraints)
        outcomes.append(found.outcome)
        print(found)
    for name in PROMISED:
        if name not in extras:
            print(f"{name}: no extra of its own, the base install has what it needs")
    for name, reason in APART.items():
        print(f"[{name}] is kept apart: {reason}")
    print("SkyPilot is kept apart: it is a program in an environment of its own, never imported")
    return 1 if Outcome.CONFLICT in outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
