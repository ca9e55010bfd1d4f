"""JSONC in place: every layout is read, edits hold, and nothing else of the text moves."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.connect.edits import Edit, Match, nested
from ninfer.connect.jsonc import parse
from ninfer.connect.jsonc_edit import amend
from ninfer.errors import ClientConfigError

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(blacklist_categories=("Cs",)), max_size=8)
)
NAMES = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=6)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=5)
BLANKS = st.sampled_from(["", " ", "\n", "\n  ", "\t", ' /* é, {"a": */ ', ' // }, "x"\n', "\r\n"])


def write(draw: Any, value: object) -> str:
    """The value as JSONC in a layout that hypothesis chooses."""

    def blank() -> str:
        return draw(BLANKS)

    if not isinstance(value, dict | list) or not value:
        body = "" if isinstance(value, dict | list) else json.dumps(value)
        ends = {dict: "{}", list: "[]"}.get(type(value))
        return blank() + (ends[0] + blank() + ends[1] if ends else body) + blank()
    if isinstance(value, dict):
        parts = [
            blank()
            + json.dumps(name, ensure_ascii=draw(st.booleans()))
            + blank()
            + ":"
            + write(draw, inner)
            for name, inner in value.items()
        ]
        ends = "{}"
    else:
        parts, ends = [write(draw, inner) for inner in value], "[]"
    trailing = "," + blank() if draw(st.booleans()) else ""
    return blank() + ends[0] + ",".join(parts) + trailing + ends[1] + blank()


@st.composite
def documents(draw: Any) -> tuple[dict[str, Any], str]:
    value = draw(OBJECTS)
    return value, write(draw, value)


def comments(text: str) -> list[str]:
    """All comments, by a reading of its own: strings are skipped first."""
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|//[^\r\n]*|/\*.*?\*/', text, re.DOTALL)
    return [token.rstrip() for token in tokens if token.startswith("/")]


@given(documents())
def test_any_layout_is_read(document: tuple[dict[str, Any], str]) -> None:
    value, text = document
    assert parse(text, "f").value == value


@given(documents(), st.lists(NAMES, min_size=1, max_size=3), VALUES)
def test_an_edit_holds_and_the_rest_stays(
    document: tuple[dict[str, Any], str], path: list[str], new: object
) -> None:
    before, text = document
    node: Any = before
    for step in path[:-1]:
        node = node.get(step, {})
        if not isinstance(node, dict):
            with pytest.raises(ClientConfigError, match="not an object"):
                amend(text, [Edit(tuple(path), new)], "f")
            return
    wanted = json.loads(json.dumps(before))
    node = wanted
    for step in path[:-1]:
        node = node.setdefault(step, {})
    replaced = path[-1] in node
    node[path[-1]] = new
    once = amend(text, [Edit(tuple(path), new)], "f")
    assert parse(once, "f").value == wanted
    if not replaced:  # comments inside a replaced value go with it
        assert comments(once) == comments(text)
    assert amend(once, [Edit(tuple(path), new)], "f") == once


@given(documents(), NAMES)
def test_what_holds_already_changes_no_byte(
    document: tuple[dict[str, Any], str], name: str
) -> None:
    value, text = document
    edits = [Edit((key,), inner) for key, inner in value.items()]
    assert amend(text, edits, "f") == (text if value else amend(text, [], "f"))


def test_the_layout_of_the_file_is_kept() -> None:
    text = """{
    // what I like
    "theme": "dark", // night
    "list": [
        {"id": "a"}
    ], /* trailing comma */
}
"""
    edits = [
        Edit(("provider", "ninfer", "url"), "http://x/v1"),
        Edit(("list", Match((("id", "b"),)), "n"), 1),
        Edit(("theme",), "light", only_if_absent=True),
    ]
    assert (
        amend(text, edits, "f")
        == """{
    // what I like
    "theme": "dark", // night
    "list": [
        {"id": "a"},
        {
            "id": "b",
            "n": 1
        }
    ], /* trailing comma */
    "provider": {
        "ninfer": {
            "url": "http://x/v1"
        }
    },
}
"""
    )


def test_a_match_is_found_again_and_windows_lines_stay() -> None:
    step = Match((("id", "m"), ("url", "u")))
    text = '{\r\n  "a": [{"id": "m", "url": "v"}, {"id": "m", "url": "u", "own": 7}]\r\n}\r\n'
    once = amend(text, [Edit(("a", step, "k"), 2)], "f")
    assert parse(once, "f").value["a"][1] == {"id": "m", "url": "u", "own": 7, "k": 2}
    assert "\n" not in once.replace("\r\n", "")
    assert amend(once, [Edit(("a", step, "k"), 2)], "f") == once


def test_equal_in_python_is_not_equal_in_json() -> None:
    assert parse(amend('{"a": 1}', [Edit(("a",), True)], "f"), "f").value == {"a": True}
    assert "true" in amend('{"a": 1}', [Edit(("a",), True)], "f")


def test_nested_builds_objects_and_arrays() -> None:
    assert nested(("a", Match((("id", 1),)), "b"), 2) == {"a": [{"id": 1, "b": 2}]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1', "f:1:8: a comma or '}' is missing"),
        ('{"a": }', "f:1:7: a value is missing"),
        ('{\n  "a" 1\n}', "f:2:7: no colon behind 'a'"),
        ('{"a": 1, "a": 2}', "f:1:10: member 'a' stands twice"),
        ('{"a": nul}', "f:1:7: not JSON"),
        ("{} {}", "f:1:4: text behind the value"),
        ('{"a": /* open', "f:1:7: not JSON"),
        ('{"a\n": 1}', "f:1:2: a string is missing or does not end"),
        ('{"a": "\\q"}', "f:1:7: a string has an unknown escape"),
        ("[" * 300 + "]" * 300, "nested too deeply"),
        ("{,}", "f:1:2: a string is missing"),
        ("[1]", "f: the file is an array, not an object"),
        ('{"p": "x"}', "f: p is a string, not an object"),
        ('{"p": {"q": {}}}', "f: p.q is an object, not an array"),
    ],
)
def test_a_broken_file_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ClientConfigError) as caught:
        amend(text, [Edit(("p", "q", Match((("id", 1),)), "k"), 1)], "f")
    assert message in str(caught.value)
