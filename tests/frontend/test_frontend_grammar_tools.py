"""Tool calls under a grammar: names, parameters, values, and what strict tools refuse."""

import random
import re

import pytest
from grammar_walks import PLAIN, THINKING, accepts, allowed_ids, random_answer

from ninfer.errors import ConstraintError
from ninfer.request import JsonObjectSpec, JsonSchemaSpec, ToolCallSpec, ToolRule

WEATHER = ToolRule(
    "weather.now",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "where"},
            "days": {"$ref": "#/$defs/count"},
            "opts": {"type": "object", "properties": {"n": {"$ref": "#/$defs/count"}}},
            "unit": {"enum": ["c", "f", 3, None]},
            "note": {"type": ["string", "null"], "maxLength": 5},
            "kind": {"anyOf": [{"const": "hot"}, {"type": "array"}]},
        },
        "required": ["days"],
        "additionalProperties": {"type": "integer"},
        "$defs": {"count": {"type": "integer", "minimum": 0}},
    },
    strict=True,
)
TIME = ToolRule("time")
LOOSE = ToolRule(
    "loose", {"properties": {"a": {}, "b": {"not": {"type": "array"}, "type": "object"}}}
)
REQUIRED = ToolCallSpec((WEATHER, TIME, LOOSE), required=True)
IN_TEXT = ToolCallSpec((WEATHER, TIME, LOOSE))


def call(name: str, **values: object) -> str:
    tags = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{tags}</function>\n</tool_call>"


NOW = call("time")
W = WEATHER.name


@pytest.mark.parametrize("spec", [REQUIRED, IN_TEXT], ids=["required", "in text"])
@pytest.mark.parametrize(
    ("text", "good"),
    [
        (call(W, days=3), True),
        (call(W, city="Paris", days=3), True),
        (call(W, days=3, city="Paris"), True),
        (call(W, days=3, opts='{"n": 1}', unit="c", kind="hot", city="x", note="null"), True),
        (call(W, days=3, city='  if a < b:\n\tprint("&lt;")\n\n</div> </parameter> x'), True),
        (call(W, days=3, city=""), True),
        (call(W, days=3, city="</function>\n</tool_call>"), True),
        (call(W, city="Paris"), False),  # a required one is missing
        (call(W, days="three"), False),
        (call(W, days=-1), False),
        (call(W, days=1, opts='{"n": -1}'), False),
        (
            call(W, days=1).replace(
                "</function>", "<parameter=days>\n1\n</parameter>\n</function>"
            ),
            False,
        ),
        (call(W, days=1, unit="3"), True),
        (call(W, days=1, unit="null"), True),
        (call(W, days=1, unit="k"), False),
        (call(W, days=1, note="12345"), True),
        (call(W, days=1, note="123456"), False),
        (call(W, days=1, kind="[1]"), True),
        (call(W, days=1, kind="cold"), False),
        (call(W, days=1, extra=12), True),
        (call(W, days=1, extra="x"), False),
        (NOW, True),
        (call("time", a=1), False),
        (call("loose", a="anything"), True),
        (call("loose", b='{"x": []}'), True),
        (call("loose", b="[]"), False),
        (call("loose", c="x"), False),
        (call("other"), False),
        (NOW + "\n" + call(W, days=0), True),
        (NOW + NOW, False),
        ("<tool_call>", False),
        (NOW[:-1], False),
    ],
)
def test_calls_of_known_tools(frontend, spec, text, good):
    if spec is IN_TEXT and text == NOW + NOW:
        good = True  # between two calls of a text any text may stand, or none
    assert accepts(frontend, spec, text) is good
    assert accepts(frontend, spec, f"hm <tool_call></think>\n\n{text}", THINKING) is good


def test_text_around_calls(frontend):
    assert not accepts(frontend, REQUIRED, "Let me see.\n\n" + NOW)
    assert not accepts(frontend, REQUIRED, "")
    for text in (
        "",
        "Only <tool_c prose.",
        f"Let me see.\n\n{NOW}",
        f"a {NOW} b {NOW} c",
        "</think>",
    ):
        assert accepts(frontend, IN_TEXT, text)
    # A strict call cannot slip out in a form without the outer tag.
    assert not accepts(frontend, IN_TEXT, "see <function=time>\n</function>")
    assert not accepts(frontend, IN_TEXT, "write <tool_call> here")


def test_one_call_at_most_without_parallel_calls(frontend):
    for required in (True, False):
        spec = ToolCallSpec((TIME,), required=required, parallel=False)
        assert accepts(frontend, spec, NOW)
        assert not accepts(frontend, spec, NOW + "\n" + NOW)
    assert accepts(frontend, ToolCallSpec((TIME,), parallel=False), f"a {NOW} b")


@pytest.mark.parametrize("answer", [JsonObjectSpec(), JsonSchemaSpec({"type": "object"})])
def test_calls_or_an_answer(frontend, answer):
    spec = ToolCallSpec((TIME, WEATHER), answer=answer)
    assert accepts(frontend, spec, NOW + "\n" + NOW)
    assert accepts(frontend, spec, '{"a": 1}')
    assert not accepts(frontend, spec, "text")
    assert not accepts(frontend, spec, '{"a": 1}' + NOW)


def test_the_opening_tag_is_forced_as_its_own_id(frontend):
    assert allowed_ids(frontend.new_constraint(PLAIN, REQUIRED)) == [
        frontend.tokenizer.added["<tool_call>"]
    ]


def test_two_hundred_tools_with_eight_parameters(frontend):
    properties = {f"p{number}": {"type": ["string", "object"][number % 2]} for number in range(8)}
    tools = tuple(
        ToolRule(f"mcp__server_{number}__tool", {"properties": properties, "required": ["p1"]})
        for number in range(200)
    )
    spec = ToolCallSpec(tools, required=True)
    assert accepts(frontend, spec, call("mcp__server_77__tool", p0="x", p1="{}"))
    assert not accepts(frontend, spec, call("mcp__server_200__tool", p1="{}"))


@pytest.mark.parametrize(
    ("parameters", "code", "named"),
    [
        ({"properties": {"a": {"type": "string", "pattern": "x"}}}, "unsupported", "pattern"),
        ({"properties": {"a": {"type": "object", "not": {}}}}, "unsupported", "parameter a"),
        ({"properties": {"a": {"type": "integer", "minimum": "x"}}}, "invalid", "minimum"),
        ({"properties": {"a": {"type": "string", "minLength": -1}}}, "invalid", "minLength"),
        ({"properties": {"a": {"type": "string", "minLength": 2**32}}}, "unsupported", "minLength"),
        ({"properties": {"a": {"minLength": 3, "maxLength": 1}}}, "unsatisfiable", "minLength 3"),
        ({"properties": {"a": 3}}, "invalid", "is no schema"),
        ({"properties": [1]}, "invalid", "properties"),
        ({"required": "a"}, "invalid", "required"),
        ({"properties": {"a b": {}}}, "unsupported", "'a b'"),
        ({"anyOf": [{"required": ["a"]}], "properties": {"a": {}}}, "unsupported", "anyOf"),
        ({"properties": {f"p{n}": {} for n in range(65)}}, "unsupported", "65 parameters"),
        ({"properties": {"a": {"$ref": "#/$defs/missing"}}}, "unsupported", r"\$ref"),
    ],
)
def test_strict_tools_that_cannot_be_enforced_are_refused(frontend, parameters, code, named):
    spec = ToolCallSpec((ToolRule("t", parameters, strict=True),), required=True)
    with pytest.raises(ConstraintError, match=rf"tool t.*{named}") as caught:
        frontend.new_constraint(PLAIN, spec)
    assert caught.value.code == f"{code}_json_schema"


@pytest.mark.parametrize("names", [(), ("a", "a"), ("a b",), ("<a>",), ("",)])
def test_tools_that_cannot_be_told_apart_are_refused(frontend, names):
    with pytest.raises(ConstraintError):
        frontend.new_constraint(PLAIN, ToolCallSpec(tuple(map(ToolRule, names)), required=True))


def test_a_length_beyond_any_answer_is_no_bound(frontend):
    text = {"type": "string", "minLength": 2, "maxLength": 2**53}
    spec = ToolCallSpec((ToolRule("t", {"properties": {"a": text}}, strict=True),), required=True)
    assert accepts(frontend, spec, call("t", a="xy"))
    assert not accepts(frontend, spec, call("t", a="x"))


@pytest.mark.parametrize("others", [True, {}, {"type": ["string", "integer"]}])
def test_parameters_that_are_not_declared(frontend, others):
    for properties in ({}, {"a": {"type": "integer"}}):
        rule = ToolRule("t", {"properties": properties, "additionalProperties": others})
        spec = ToolCallSpec((rule,), required=True)
        assert accepts(frontend, spec, call("t", x="anything", y="2"))
        assert accepts(frontend, spec, call("t"))
        assert accepts(frontend, spec, call("t", a="x")) is (not properties)


def test_circular_references_end(frontend):
    loop = {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"$ref": "#/$defs/x"}}}
    tree = {
        "properties": {"a": {"$ref": "#/$defs/x"}},
        "$defs": {"x": {"anyOf": [{"$ref": "#/$defs/x"}, {"type": "string"}]}},
    }
    for parameters in (loop, tree):
        spec = ToolCallSpec((ToolRule("t", parameters),), required=True)
        assert accepts(frontend, spec, call("t", a="x"))


CALL = re.compile(
    r"<tool_call>\n<function=([^\n>]+)>\n((?:<parameter=[^\n>]+>\n.*?\n</parameter>\n)*)"
    r"</function>\n</tool_call>",
    re.DOTALL,
)


@pytest.mark.parametrize("seed", range(25))
def test_random_answers_are_calls(frontend, seed):
    """Whatever is drawn under the masks: the text is calls of known tools with what they need."""
    rng = random.Random(seed)
    constraint = frontend.new_constraint(PLAIN, REQUIRED)
    text = random_answer(frontend, constraint, rng, limit=120, soft=20)
    if text is None:
        assert not constraint.is_finished
        return
    shown = text.decode(errors="strict")
    calls = list(CALL.finditer(shown))
    assert calls and CALL.sub("", shown).strip() == ""
    for found in calls:
        assert found[1] in (WEATHER.name, "time", "loose")
        keys = re.findall(r"^<parameter=(.*?)>$", found[2], re.MULTILINE)
        assert found[1] != WEATHER.name or "days" in keys
