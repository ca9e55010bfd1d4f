"""Every scenario of fleet.md 5.8 and every entry of group M of the users' demand has its test."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
# The group leaves numbers out.
ENTRIES = {1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19}
SCENARIOS = set(range(1, 15))
_SCENARIO = re.compile(r"[Ss]cenarios? ((?:\d+(?:, | and )?)+)")
_ENTRY = re.compile(r"\bM(\d+)\b")


def docstrings() -> Iterator[tuple[str, str]]:
    """Name and docstring of every test of the folders that the fleet's promises reach."""
    for folder in ("artifact", "fleet", "kits"):
        for path in sorted((TESTS / folder).glob("test_*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    yield node.name, ast.get_docstring(node) or ""


def test_each_has_a_test_by_its_number() -> None:
    scenarios: dict[int, list[str]] = {}
    entries: dict[int, list[str]] = {}
    for name, text in docstrings():
        for found in _SCENARIO.findall(text):
            for number in re.findall(r"\d+", found):
                scenarios.setdefault(int(number), []).append(name)
        for number in _ENTRY.findall(text):
            entries.setdefault(int(number), []).append(name)
    assert set(scenarios) == SCENARIOS, sorted(SCENARIOS ^ set(scenarios))
    assert set(entries) == ENTRIES, sorted(ENTRIES ^ set(entries))
