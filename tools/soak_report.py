"""Writes docs/reliability.md from the JUnit file of `make soak`.

A test states its full count with `record_property("count", n)`, in the words of
`record_property("unit", "mutations")`. With `--add` the results of a run of some soak tests go
into the page of a whole one.
"""

import argparse
import datetime
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

from ninfer.version import VERSION
from tools.markdown import code, table

NOTICE = "<!-- Written by `make soak`; run it again instead of editing. -->"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One soak test: how many cases it ran, in how many seconds, and whether it passed."""

    name: str
    count: int | None
    unit: str
    seconds: float
    passed: bool


def outcomes(junit: str) -> list[Outcome]:
    """Read the test cases of a JUnit document, ordered by name."""
    found = []
    for case in ElementTree.fromstring(junit).iter("testcase"):
        properties = {item.get("name"): item.get("value", "") for item in case.iter("property")}
        failed = case.find("failure") is not None or case.find("error") is not None
        found.append(
            Outcome(
                name=f"{case.get('classname', '')}::{case.get('name', '')}",
                count=int(properties["count"]) if "count" in properties else None,
                unit=properties.get("unit", "cases"),
                seconds=float(case.get("time", "0")),
                passed=not failed,
            )
        )
    return sorted(found, key=lambda outcome: outcome.name)


def render(found: list[Outcome], *, date: str, revision: str) -> str:
    """The page: what ran, on which revision, and each test's count and result."""
    rows = _rows(found)
    failed = sum(not outcome.passed for outcome in found)
    head = [
        NOTICE,
        "",
        "# Reliability",
        "",
        "Full counts of the equality, cancellation, fuzz and fault tests, as `make soak` ran them.",
        "`make test` runs the same tests with smaller counts.",
        "",
        f"- date: {date}",
        f"- version: {VERSION}, revision {revision}",
        f"- result: {len(found) - failed} passed, {failed} failed",
        "",
    ]
    return "\n".join([*head, *table(["test", "count", "seconds", "result"], rows)]) + "\n"


def _rows(found: list[Outcome]) -> list[tuple[str, ...]]:
    return [
        (
            code(outcome.name),
            f"{outcome.count:,} {outcome.unit}" if outcome.count is not None else "not stated",
            f"{outcome.seconds:.1f}",
            "passed" if outcome.passed else "FAILED",
        )
        for outcome in found
    ]


def add(found: list[Outcome], page: str, *, revision: str) -> str:
    """The page with the rows of a later run of some tests, which name their own revision."""
    head, rows = [], {}
    for line in page.splitlines():
        if line.startswith("| `"):
            rows[line.split("`")[1]] = line
        else:
            head.append(line)
    for outcome in found:
        (row,) = _rows([outcome])
        rows[outcome.name] = "| " + " | ".join([*row[:-1], f"{row[-1]} at {revision}"]) + " |"
    failed = sum(" | FAILED" in row for row in rows.values())
    result = f"- result: {len(rows) - failed} passed, {failed} failed"
    head = [result if line.startswith("- result: ") else line for line in head]
    return "\n".join([*head, *(rows[name] for name in sorted(rows))]) + "\n"


def revision() -> str:
    """Short commit id of the checkout, marked when the tree differs from it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main(argv: list[str] | None = None) -> int:
    """Write the page; 1 when no soak test ran or one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("junit", type=Path)
    parser.add_argument("page", type=Path)
    parser.add_argument("--add", action="store_true", help="keep what other runs have written")
    args = parser.parse_args(argv)
    found = outcomes(args.junit.read_text(encoding="utf-8"))
    if not found:
        print("no soak test ran; docs/reliability.md is unchanged")
        return 1
    if args.add:
        page = add(found, args.page.read_text(encoding="utf-8"), revision=revision())
    else:
        page = render(found, date=_today(), revision=revision())
    args.page.write_text(page, encoding="utf-8")
    print(f"wrote {args.page}")
    return 0 if all(outcome.passed for outcome in found) else 1


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


if __name__ == "__main__":
    sys.exit(main())
