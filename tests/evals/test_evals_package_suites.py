"""The suites of the package: their own answers are right, answers to other items are not."""

from collections import Counter
from itertools import pairwise

import pytest
from answers import answer_of

from ninfer.evals import Answer, Item, Suite, load_suite, suite_names
from ninfer.evals.graders import grade
from ninfer.frontend import parse_conversation

# Colours and small numbers are often right for the next picture too.
MOST_BY_LUCK = 0.4


@pytest.fixture(scope="module", params=suite_names())
def suite(request: pytest.FixtureRequest) -> Suite:
    return load_suite(request.param)


def reference_of(item: Item) -> Answer:
    calls = [call["function"] for call in item.reference.get("tool_calls", ())]
    named = tuple((call["name"], call["arguments"]) for call in calls)
    return answer_of(item.reference["content"] or "", named)


def test_references_are_right(suite: Suite) -> None:
    wrong = {item.id: grade(item.grader, reference_of(item)) for item in suite.items}
    assert {name: reasons for name, reasons in wrong.items() if reasons} == {}


def test_answers_to_other_items_are_wrong(suite: Suite) -> None:
    tried, right = Counter[str](), Counter[str]()
    for one, other in pairwise(suite.items):
        if one.task == other.task:
            tried[one.task] += 1
            right[one.task] += not grade(one.grader, reference_of(other))
    assert all(right[task] <= MOST_BY_LUCK * tried[task] for task in suite.tasks), right
    assert right.total() < 0.1 * tried.total()


def test_conversations_can_be_read(suite: Suite) -> None:
    for item in suite.items:
        conversation = parse_conversation(list(item.messages), list(item.tools) or None)
        assert conversation.messages[-1].role in ("user", "tool")


def test_every_task_has_items_enough_for_an_interval(suite: Suite) -> None:
    counts = Counter(item.task for item in suite.items)
    assert min(counts.values()) >= 100
