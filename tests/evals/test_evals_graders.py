"""Each grader takes right answers and names what is wrong with the others."""

from typing import Any

import pytest
from answers import answer_of

from ninfer.errors import UsageError
from ninfer.evals.graders import KINDS, grade, parse_grade
from ninfer.request import FinishReason

RECORDS: dict[str, Any] = {
    "fields": [{"name": "id", "type": "integer"}, {"name": "name", "type": "string"}],
    "count": 2,
}
OBJECT = {"kind": "json_object", "fields": RECORDS["fields"]}
STORY = {"kind": "story", "parts": 2, "mark": "Part", "words": ["fox"], "ending": "The end."}
TOLD = "Part 1\nA fox ran.\n\nPart 2\nIt slept.\nThe end."
SPANISH = {
    "kind": "language_length",
    "lexicon": ["el", "perro", "come", "pan"],
    "unit": "sentences",
    "least": 2,
    "most": 2,
}
CALLS = {
    "kind": "tool_calls",
    "calls": [
        {"name": "weather", "arguments": {"city": "Oslo", "days": 2}},
        {"name": "clock", "arguments": {}},
    ],
}
WEATHER, CLOCK = ("weather", {"city": "Oslo", "days": 2}), ("clock", {})


def wrong(values: dict[str, Any], content: str) -> tuple[str, ...]:
    return grade(parse_grade(values, "grade"), answer_of(content))


RIGHT = [
    ({"kind": "exact", "answer": "red"}, " red.\n"),
    ({"kind": "exact", "answer": "The cat."}, "The cat"),
    ({"kind": "exact", "answer": "Red", "ignore_case": True}, "rED"),
    ({"kind": "exact", "answer": "3.5"}, "3.5"),
    ({"kind": "one_of", "answers": ["two", "2"]}, "2."),
    ({"kind": "number", "answer": 1692}, "47 x 36 = 1692"),
    ({"kind": "number", "answer": 1692}, "It is 1,692."),
    ({"kind": "number", "answer": -5}, "3 - 8 = -5."),
    ({"kind": "number", "answer": 4}, "3-4"),
    ({"kind": "number", "answer": 42}, "42.0"),
    ({"kind": "number", "answer": 3}, "1,2,3"),
    ({"kind": "number", "answer": 0}, "**0**"),
    ({"kind": "number", "answer": 10**20 + 1}, f"{10**20 + 1}"),
    ({"kind": "list", "items": ["fig", "pear"]}, "fig, pear."),
    ({"kind": "list", "items": ["fig", "pear"]}, '["fig", "pear"]'),
    ({"kind": "list", "items": ["fig", "pear"]}, "- fig\n- pear\n"),
    ({"kind": "list", "items": [3, 14]}, "1. 3\n2. 14"),
    ({"kind": "list", "items": [3, 14]}, "[3, 14]"),
    ({"kind": "list", "items": [-3, 14]}, "-3\n14"),
    ({"kind": "list", "items": ["a", "b"], "ordered": False}, "b, a"),
    ({"kind": "list", "items": ["3", "14"], "separator": "; "}, "3; 14."),
    ({"kind": "list", "items": [3, 14], "separator": "\n"}, "3\n14\n"),
    ({"kind": "list", "items": []}, ""),
    ({"kind": "list", "items": []}, "[]"),
    ({"kind": "contains", "all": ["red", "7"], "absent": ["blue"]}, "7 red, blueish"),
    ({"kind": "contains", "all": ["C++"], "ignore_case": True}, "Use c++!"),
    ({"kind": "json_object", "answer": {"a": [1, {"b": None}]}}, '{"a": [1.0, {"b": null}]}'),
    (OBJECT, '{"name": "x", "id": 1}'),
    ({"kind": "jsonl", **RECORDS}, '{"id": 1, "name": "x"}\n{"id": 2, "name": "y"}'),
    ({"kind": "csv", **RECORDS}, 'id,name\n1,"a,b"\n2,c'),
    ({"kind": "sql", **RECORDS, "table": "t"}, "INSERT INTO t (id, name) VALUES (1,'a'), (2,'b');"),
    (STORY, TOLD),
    (STORY, TOLD.replace("Part 1\n", "Part 1: ").replace("fox", "Fox")),
    (SPANISH, "El perro come. Come pan."),
    ({**SPANISH, "share": 0.7}, "El perro come. Come pizza."),
    ({**SPANISH, "unit": "words", "least": 3, "most": None}, "el perro come pan"),
]
WRONG = [
    ({"kind": "exact", "answer": "red"}, "Red", "'Red' is not 'red'"),
    ({"kind": "exact", "answer": "red"}, "It is red", "is not 'red'"),
    ({"kind": "exact", "answer": "red"}, "red..", "is not 'red'"),
    ({"kind": "exact", "answer": "a\nb"}, "a b", "is not 'a\\nb'"),
    ({"kind": "exact", "answer": "red"}, "", "'' is not 'red'"),
    ({"kind": "exact", "answer": "red"}, "```\nred\n```", "is not 'red'"),
    ({"kind": "one_of", "answers": ["two", "2"]}, "two 2", "is not 'two' or '2'"),
    ({"kind": "number", "answer": 5}, "five", "no number"),
    ({"kind": "number", "answer": 5}, "5 or 6", "6 is not 5"),
    ({"kind": "number", "answer": 5}, "0.5", "0.5 is not 5"),
    ({"kind": "number", "answer": 5}, "-5", "-5 is not 5"),
    ({"kind": "number", "answer": 5}, "x5", "no number"),
    ({"kind": "number", "answer": 1692}, "1 692", "692 is not 1692"),
    ({"kind": "list", "items": ["fig", "pear"]}, "pear, fig", "is not 'fig, pear'"),
    ({"kind": "list", "items": ["fig", "pear"]}, "fig", "is not 'fig, pear'"),
    ({"kind": "list", "items": ["fig", "pear"]}, "fig, pear, fig", "is not"),
    ({"kind": "list", "items": ["fig", "pear"]}, "Here: fig, pear", "is not"),
    ({"kind": "list", "items": ["fig", "pear"]}, '["fig", "pear",]', "is not"),
    ({"kind": "list", "items": ["fig", "pear"]}, "fig\n\npear", "is not"),
    ({"kind": "list", "items": ["a", "a", "b"], "ordered": False}, "a, b, b", "is not"),
    ({"kind": "list", "items": [3, 14], "separator": ", "}, "3,14", "'3,14' is not '3, 14'"),
    ({"kind": "list", "items": [3, 14], "separator": "; "}, "3, 14", "is not"),
    ({"kind": "list", "items": [], "separator": "; "}, "3", "'3' is not ''"),
    ({"kind": "list", "items": []}, "none", "is not"),
    ({"kind": "contains", "all": ["red"]}, "coloured", "'red' is missing"),
    ({"kind": "contains", "all": ["red"]}, "Red", "'red' is missing"),
    ({"kind": "contains", "all": ["a"], "absent": ["b"]}, "a b", "'b' must not occur"),
    ({"kind": "json_object", "answer": {"a": 1}}, '```json\n{"a": 1}\n```', "not JSON"),
    ({"kind": "json_object", "answer": {"a": 1}}, '{"a": 1,}', "not JSON"),
    ({"kind": "json_object", "answer": {"a": 1}}, '{"a": true}', "answer.a is True, not 1"),
    ({"kind": "json_object", "answer": {"a": 1}}, '{"a": "1"}', "answer.a is '1', not 1"),
    ({"kind": "json_object", "answer": {"a": 1}}, '{"a": 1, "b": 2}', "answer.b was not asked"),
    ({"kind": "json_object", "answer": {"a": 1}}, "{}", "answer.a is missing"),
    ({"kind": "json_object", "answer": {"a": [1]}}, '{"a": [1, 2]}', "answer.a is [1, 2]"),
    (OBJECT, '[{"name": "x", "id": 1}]', "the answer is no JSON object"),
    (OBJECT, '{"name": "x", "id": "1"}', "the answer: id is '1', which is no integer"),
    (OBJECT, '{"name": "x"}', "the answer: field 'id' is missing"),
    ({"kind": "jsonl", **RECORDS}, '{"id": 1, "name": "x"}', "1 records in place of 2"),
    ({"kind": "csv", **RECORDS}, "id,name\n1,a,b\n2,c", "3 cells in place of 2"),
    ({"kind": "sql", **RECORDS}, "INSERT INTO t (id, name) VALUES (1, 'it's'), (2, 'b');", "read"),
    (
        {"kind": "csv", **RECORDS, "rows": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]},
        "id,name\n1,a\n2,c",
        "rows[1].name is 'c', not 'b'",
    ),
    (STORY, TOLD.replace("Part 2", "Part 3"), "the parts are numbered 1, 3, not 1..2"),
    (STORY, TOLD.replace("The end.", "Part 3\nMore. The end."), "numbered 1, 2, 3, not 1..2"),
    (STORY, TOLD.replace("fox", "cat"), "'fox' is missing"),
    (STORY, TOLD.removesuffix("The end."), "it does not end with 'The end.'"),
    (STORY, "A story.\n" + TOLD, "'A story.\\n' stands before the first part"),
    (STORY, "Part 1\nPart 2\nA fox. The end.", "a part has no text"),
    (STORY, "Part 1\nA fox. The end.\nPart 2\nA fox.  The end.", "a part repeats another"),
    (SPANISH, "The dog eats. El perro come.", "other words than of the language: 'the dog eats'"),
    (SPANISH, "El perro come pan.", "1 sentences, not 2 to 2"),
    (SPANISH, "El. Perro. Pan.", "3 sentences, not 2 to 2"),
    ({**SPANISH, "share": 0.9}, "El perro come. Come pizza.", "other words"),
    (SPANISH, "... !", "other words"),
]


@pytest.mark.parametrize(("values", "content"), RIGHT)
def test_right_answers(values: dict[str, Any], content: str) -> None:
    assert wrong(values, content) == ()


@pytest.mark.parametrize(("values", "content", "reason"), WRONG)
def test_wrong_answers(values: dict[str, Any], content: str, reason: str) -> None:
    reasons = wrong(values, content)
    assert any(reason in line for line in reasons), reasons


def test_every_kind_is_tried_both_ways() -> None:
    for cases in (RIGHT, WRONG):
        assert {case[0]["kind"] for case in cases} | {"tool_calls"} == set(KINDS)


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ((WEATHER, CLOCK), None),
        ((("weather", {"days": 2, "city": "Oslo"}), CLOCK), None),
        ((CLOCK, WEATHER), "calls[0].name is 'clock', not 'weather'"),
        ((WEATHER,), "1 calls (weather) in place of 2"),
        ((WEATHER, CLOCK, CLOCK), "3 calls (weather, clock, clock) in place of 2"),
        ((), "0 calls (none) in place of 2"),
        ((("weather", {"city": "Oslo", "days": "2"}), CLOCK), "arguments.days is '2', not 2"),
        ((("weather", {"city": "Oslo"}), CLOCK), "arguments.days is missing"),
        ((WEATHER, ("clock", {"zone": "UTC"})), "arguments.zone was not asked for"),
    ],
)
def test_tool_calls(calls: Any, reason: str | None) -> None:
    reasons = grade(parse_grade(CALLS, "grade"), answer_of("Let me see.", calls))
    assert reasons == () if reason is None else reason in reasons[0]


def test_a_call_where_none_is_wanted_is_wrong() -> None:
    none = parse_grade({"kind": "tool_calls", "calls": []}, "grade")
    assert grade(none, answer_of("Hello.")) == ()
    assert "1 calls (clock) in place of 0" in grade(none, answer_of("", (CLOCK,)))[0]


@pytest.mark.parametrize("finish", [f for f in FinishReason if f is not FinishReason.STOP_TOKEN])
def test_an_answer_that_was_cut_is_wrong(finish: FinishReason) -> None:
    grader = parse_grade({"kind": "number", "answer": 5}, "grade")
    assert grade(grader, answer_of("5", finish=finish)) == (f"ended by {finish}",)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "grade: None must be an object with a kind"),
        ({"kind": "regex"}, "grade.kind: 'regex' must be one of exact, one_of"),
        ({"kind": "exact"}, "grade.answer: None must be of type str"),
        ({"kind": "exact", "answer": " "}, "grade.answer: must not be empty"),
        ({"kind": "exact", "answer": "a", "case": True}, "grade.case: unknown for kind exact"),
        ({"kind": "exact", "answer": "a", "ignore_case": 1}, "ignore_case: 1 must be of type bool"),
        ({"kind": "one_of", "answers": []}, "grade.answers: must not be empty"),
        ({"kind": "one_of", "answers": ["a", 1]}, "must hold texts that are not empty"),
        ({"kind": "number", "answer": True}, "grade.answer: True must be of type int"),
        ({"kind": "number", "answer": 1.5}, "grade.answer: 1.5 must be of type int"),
        ({"kind": "list", "items": [1.5]}, "must hold texts and integers"),
        ({"kind": "json_object", "answer": []}, "grade.answer: [] must be of type dict"),
        ({"kind": "json_object"}, "grade: json_object needs either answer or fields"),
        ({**OBJECT, "answer": {"a": 1}}, "needs either answer or fields"),
        ({"kind": "jsonl"}, "grade.fields: must be a list with at least one field"),
        ({"kind": "csv", **RECORDS, "rows": [1]}, "grade.rows: must hold objects"),
        ({"kind": "story", "parts": 0}, "grade.parts: 0 must be positive"),
        ({"kind": "story", "parts": -1}, "grade.parts: -1 must not be negative"),
        ({**SPANISH, "unit": "pages"}, "grade.unit: 'pages' must be one of words"),
        ({**SPANISH, "most": 1}, "grade.most: 1 is below least (2)"),
        ({**SPANISH, "share": 0}, "grade.share: 0 must be above 0"),
        ({"kind": "tool_calls", "calls": [{"name": "f"}]}, "must be an object with name and"),
        ({"kind": "tool_calls", "calls": [{"name": "f", "arguments": "{}"}]}, "the arguments an"),
    ],
)
def test_a_grade_that_cannot_be_meant_is_refused(values: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_grade(values, "grade")
    assert message in str(caught.value)
