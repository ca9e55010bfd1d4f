"""Values of parameters: white space, types from the schema, and nothing lost."""

import json
import time
import warnings

import pytest
from tool_call_scene import W, call, outcome_of, same, tool, w

from ninfer.frontend.tool_calls.declared import ToolParameters
from ninfer.frontend.tool_calls.values import json_fragment, typed_value


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("city", "    if x:\n        y\n", "    if x:\n        y\n"),
        ("city", "42", "42"),
        ("city", "null", "null"),
        ("city", "true", "true"),
        ("city", '"x"', '"x"'),
        ("city", '{"a": 1}', '{"a": 1}'),
        ("city", " \t a \t ", " \t a \t "),
        ("city", "\n\n", "\n\n"),
        ("city", "a\r\nb\r", "a\r\nb\r"),
        ("city", 'a <b> & "c" \\ </div>', 'a <b> & "c" \\ </div>'),
        ("city", "&lt;&amp;", "&lt;&amp;"),
        ("city", "\\n \\u00e9", "\\n \\u00e9"),
        ("city", "é🙂 数", "é🙂 数"),
        ("note", "null", None),
        ("note", "None", None),
        ("note", "nullify", "nullify"),
        ("note", " x ", " x "),
        ("days", "three", "three"),
        ("opts", '{"a": [true, null], "b": "x"}', {"a": [True, None], "b": "x"}),
        ("opts", "{'a': True}", {"a": True}),
        ("opts", "[1]", "[1]"),
        ("tags", '["a", "b"]', ["a", "b"]),
        ("tags", "[true, null]", [True, None]),
        ("tags", '{"a": 1}', '{"a": 1}'),
        ("on", "False", False),
        ("on", "TRUE", True),
        ("on", "1", True),
        ("any", "7", "7"),
        ("zzz", "7", "7"),
    ],
)
def test_declared_types(key, text, value):
    ((_, found),) = outcome_of(call((key, text))).calls
    assert same(found, {key: value})


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("", ""),
        ("\n", ""),
        ("\n\n", ""),
        ("\n\n\n", "\n"),
        ("v", "v"),
        ("\nv", "v"),
        ("v\n", "v"),
        (" \nv\n ", " \nv\n "),
        ("\n  v\n\n", "  v\n"),
    ],
)
def test_one_line_break_on_each_side_is_markup(raw, value):
    text = f"<function=w>\n<parameter=city>{raw}</parameter>\n</function>"
    assert outcome_of(text).calls == (w(city=value),)


# Types, text, value.
SPELLINGS = [
    ("integer", "3", 3),
    ("integer", "+3", 3),
    ("integer", "-3", -3),
    ("integer", "42.0", 42),
    ("integer", "42.5", "42.5"),
    ("integer", "1_000", "1_000"),
    ("integer", "٣", "٣"),
    ("integer", "2026-01-15", "2026-01-15"),
    ("integer", "9" * 100, int("9" * 100)),
    ("integer", "9" * 5000, "9" * 5000),
    ("integer", " 3 ", 3),
    ("integer", "", ""),
    ("number", "3", 3),
    ("number", "-0.5", -0.5),
    ("number", "1e5", 1e5),
    ("number", "1.0", 1.0),
    ("number", "inf", "inf"),
    ("number", "nan", "nan"),
    ("number", "NaN", "NaN"),
    ("number", "-Infinity", "-Infinity"),
    ("number", "1e999", "1e999"),
    ("number", ".5", ".5"),
    ("number", "1.", "1."),
    ("integer number", "3.0", 3),
    ("integer number", "3.5", 3.5),
    ("integer string", "3", 3),
    ("integer string", "x", "x"),
    ("boolean", "0", False),
    ("boolean", "yes", "yes"),
    ("boolean integer", "1", 1),
    ("boolean null", "false", False),
    ("boolean null", "0", "0"),
    ("boolean null", "NULL", "NULL"),
    ("boolean string", "1", "1"),
    ("null", "None", None),
    ("object", '{"a": NaN}', '{"a": NaN}'),
    ("object", '{"a": 1e999}', '{"a": 1e999}'),
    ("object", '{"a": 1', '{"a": 1'),
    ("object", "{'a': True, 'b': None, 'c': False}", {"a": True, "b": None, "c": False}),
    (
        "object",
        "{'a': 'it\\'s \"x\" \\n \\xe9 \\\\', \"b\": \"it's\"}",
        {"a": 'it\'s "x" \n é \\', "b": "it's"},
    ),
    ("object", "{'a': 'True'}", {"a": "True"}),
    ("object", "{'a': (1, 2)}", "{'a': (1, 2)}"),
    ("object", "{1, 2}", "{1, 2}"),
    ("object", "{'a': open('f')}", "{'a': open('f')}"),
    ("object", "{'a", "{'a"),
    ("object", "{'a\\", "{'a\\"),
    ("array", "['a', 1, None]", ["a", 1, None]),
    ("array", "[" * 100000, "[" * 100000),
    ("array", "[" * 950 + "]" * 950, "[" * 950 + "]" * 950),
    ("array object", '{"a": [1.0, 1]}', {"a": [1.0, 1]}),
    ("array object", "x", "x"),
    ("object string", '{"a": 1}', {"a": 1}),
    ("object string", "{a}", "{a}"),
    ("array null", "null", None),
]


@pytest.mark.parametrize(("types", "text", "value"), SPELLINGS)
def test_spellings(types, text, value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = typed_value(text, frozenset(types.split()))
    assert same(found, value)
    assert json.loads(json_fragment(found)) == found


def test_halves_of_characters_are_escaped():
    found = typed_value('{"a": "\\ud83d", "é": 1}', frozenset({"object"}))
    assert json_fragment(found).encode() == '{"a":"\\ud83d","é":1}'.encode()


DEFS = {
    "Point": {"type": "object", "properties": {"x": {"type": "integer"}}},
    "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}, {"type": "integer"}]},
    "Me": {"$ref": "#/$defs/Me"},
    "a/b ~c": {"type": "boolean"},
}


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "integer"}, "integer"),
        ({"type": ["integer", "null"]}, "integer null"),
        ({"type": "integer", "anyOf": [{"type": "null"}]}, "integer"),
        (
            {"enum": [1, "a", None, True, 1.5, {}, []]},
            "integer string null boolean number object array",
        ),
        ({"const": True}, "boolean"),
        ({"anyOf": [{"type": "object"}, {"type": "null"}]}, "object null"),
        ({"oneOf": [{"enum": [1]}, {"allOf": [{"type": "array"}]}]}, "integer array"),
        ({"$ref": "#/$defs/Point"}, "object"),
        ({"allOf": [{"$ref": "#/$defs/Point"}], "description": "d"}, "object"),
        ({"$ref": "#/$defs/Loop"}, "integer"),
        ({"$ref": "#/$defs/Me"}, "string"),
        ({"$ref": "#/$defs/a~1b%20~0c"}, "boolean"),
        ({"$ref": "#/$defs/Loop/anyOf/1"}, "integer"),
        ({"$ref": "#/$defs/Loop/anyOf/7"}, "string"),
        ({"$ref": "#/nowhere"}, "string"),
        ({"$ref": "https://example.com/s#/a"}, "string"),
        ({"$ref": "#"}, "object"),
        ({"$ref": 3}, "string"),
        ({"properties": {}}, "object"),
        ({"items": {}}, "array"),
        ({"type": "varchar"}, "string"),
        ({"type": 3, "enum": 4, "anyOf": 5}, "string"),
        ({"enum": []}, "string"),
        ({}, "string"),
        (True, "string"),
        (None, "string"),
        ([], "string"),
    ],
)
def test_types_of_a_schema(schema, types):
    root = {"type": "object", "properties": {"k": schema}, "$defs": DEFS}
    assert ToolParameters(root).types("k") == frozenset(types.split())
    assert ToolParameters(root).declares("k")


def test_undeclared_keys_follow_additional_properties():
    for others, types in (({"type": "integer"}, "integer"), (True, "string"), (False, "string")):
        parameters = ToolParameters({"properties": {"k": {}}, "additionalProperties": others})
        assert parameters.types("other") == {types}
        assert parameters.types("k") == {"string"}
        assert not parameters.declares("other")


def test_arguments_that_are_described_elsewhere():
    root = {"$ref": "#/$defs/Args", "$defs": {"Args": {"properties": {"k": {"type": "integer"}}}}}
    assert ToolParameters(root).types("k") == {"integer"}
    root = {"anyOf": [{"properties": {"k": {"type": "null"}}}, {"$ref": "#"}]}
    assert ToolParameters(root).types("k") == {"null"}


@pytest.mark.parametrize("schema", [None, True, [], "x", {"properties": 3}, {"properties": None}])
def test_a_malformed_schema_says_nothing(schema):
    assert ToolParameters(schema).types("k") == {"string"}
    assert not ToolParameters(schema).declares("k")


def test_deep_schemas_and_long_values_take_linear_time():
    deep = {"type": "integer"}
    for _ in range(20000):
        deep = {"anyOf": [deep]}
    started = time.process_time()
    assert ToolParameters({"properties": {"k": deep}}).types("k") == {"integer"}
    for text in ("{" + "'\\" * 200_000, "{" + "'a" * 200_000, "[" + '"\\' * 200_000):
        assert typed_value(text, frozenset({"object", "array"})) == text
    assert time.process_time() - started < 10


def test_an_object_is_never_encoded_twice():
    schema = {"anyOf": [{"$ref": "#/$defs/P"}, {"type": "null"}]}
    tools = (tool("w", {**W, "p": schema}, **{"$defs": {"P": {"type": "object"}}}),)
    found = outcome_of(call(("p", '{"x": {"y": "1"}}')), tools)
    assert found.begun == (("w", '{"p":{"x":{"y":"1"}}}'),)
