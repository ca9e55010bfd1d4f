"""docs/reports.md: public reports on other engines, and the tests that try them on this one.

A test that tries a report has its id at the front of its name: `test_e2_e5_drafts_change_nothing`.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import Final

from tools.markdown import code, page, table

# What was reported, in one line.
REPORTS: Final = {
    "D1": "room for fewer borders than one request has: never a hit, and nothing said",
    "D2": "reuse stops for good once the budget was used up",
    "D4": "a tool loop goes back to the same old checkpoint in every round",
    "D5": "coming back to a conversation gives the answer of another one",
    "D7": "the option is taken, nothing ever hits, nobody is told",
    "D8": "the whole prompt is read again in every turn",
    "D10": "a state slot leaks when an admission fails behind its allocation",
    "D11": "one slot too few: a crash at exactly full capacity",
    "D13": "a stored record holds a part of the state, and still counts as a hit",
    "E1": "drafts accepted by a threshold bend the sampled distribution",
    "E2": "penalties are taken and ignored while drafting",
    "E4": "the presence penalty counts tokens of the prompt",
    "E5": "greedy text with drafts differs from greedy text without",
    "E7": "a drafter's weights are read in a wrong layout, and no draft is ever right",
    "E8": "acceptance falls with the context while the draft length stays",
    "E10": "a stretched context reaches the model and not its drafter",
    "E11": "a temperature of zero, below zero or NaN gives garbage",
    "F1": "a stop token inside an accepted block is overlooked at the output limit",
    "F2": "of several stop strings in a block the first of the list wins, not of the text",
    "F4": "log-probabilities of drafted tokens are zero, in groups, or absent",
    "F5": "log-probabilities of the prompt are wrong with drafts and chunked prefill",
    "F7": "pieces of a stream are counted as tokens",
    "G1": "one malformed byte ends the engine",
    "G2": "a character split over tokens arrives as replacement characters",
    "J1": "a caller that leaves during prefill is not noticed, its slot stays taken",
    "J2": "a caller that leaves is never noticed",
    "J4": "the turn after an abort counts a prompt of one token",
    "J5": "a cancelled stream is logged and answered as a server error",
    "J7": "the error of one request ends all",
    "J8": "a stalled engine stays ready for ever at no tokens per second",
}
# What a test without a server, a GPU or real weights leaves open.
REST: Final = {
    "E5": "equality on a GPU needs one",
    "E7": "a start-up check of the acceptance needs real weights, since random ones accept nothing",
    "E8": "what acceptance really does at 50K needs real weights",
    "E10": "there is no stretched context in this version: asking for one is refused by name",
    "J1": "the closed socket needs the HTTP server",
    "J2": "the closed socket needs the HTTP server",
    "J5": "the log line and status of a stream need the HTTP server",
    "J8": "the cause of a stall in a driver needs a GPU; the stall itself is injected",
}
_IDS: Final = re.compile(r"test_((?:[a-z]\d+_)+)")


def tests_of(root: Path) -> dict[str, list[str]]:
    """Report id -> `file::test` of each test that has the id in its name, sorted."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((root / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and (ids := _IDS.match(node.name)):
                for one in ids[1].upper().split("_")[:-1]:
                    found[one].append(f"{path.relative_to(root / 'tests')}::{node.name}")
    return found


def reports(root: Path) -> str | None:
    """The page; None where there are no tests. Raises ValueError for a report that none tries."""
    tests = tests_of(root)
    if not tests:
        return None
    untried = [one for one in REPORTS if not tests.get(one)]
    if untried:
        raise ValueError(f"reports that no test has in its name: {', '.join(untried)}")
    rows = [
        (one, what, " ".join(map(code, sorted(tests[one]))), REST.get(one, ""))
        for one, what in REPORTS.items()
    ]
    intro = (
        "Faults that users of other engines reported in public, restated, and the tests that try "
        "them on this one without a GPU: prefix reuse (D), drafts and sampling (E), stops and "
        "counts (F), bytes and text (G), cancelling and isolation (J)."
    )
    head = ("id", "report", "tests below `tests/`", "what they leave open")
    return page("Reports", intro, table(head, rows))
