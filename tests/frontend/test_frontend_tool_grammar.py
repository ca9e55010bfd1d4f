"""Answers that follow a grammar of calls are read back as exactly those calls."""

import random
from dataclasses import replace

import pytest
from grammar_walks import PLAIN, accepts
from tool_call_scene import read, tool

from ninfer.request import ToolCallSpec, ToolRule

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "days": {"type": "integer"},
        "unit": {"enum": ["c", "f", 3]},
        "note": {"type": ["string", "null"]},
    },
    "required": ["text"],
    "additionalProperties": False,
}
SPEC = ToolCallSpec((ToolRule("w", SCHEMA, strict=True),), required=True)
TOOLS = (tool("w", SCHEMA["properties"]),)
PLAIN_WITH_TOOLS = replace(PLAIN, tools=TOOLS)
VALUES = [
    "",
    "\n",
    "plain",
    "see\n<tool_call>\n<function=w>\nopen",
    "a</parameter></function></tool_call>",
    "a</parameter>\n<parameter=days>\n1",
    "a\n</parameter></function>",
    "\n<parameter=days>\n7",
    "a\n</function>\n</tool_call>",
    "</parameter> </parameter>",
    "</parameter>\n</function>\n</tool_call>",
    "<tool_call>\n<function=w>\n</function>\n</tool_call>",
]


def calls_in(frontend, text, spec, size=1):
    output = frontend.new_output_parser(PLAIN_WITH_TOOLS, constraint=spec)
    ids = frontend.tokenizer.encode(text)
    events = [e for i in range(0, len(ids), size) for e in output.feed(ids[i : i + size])]
    found = read(events + output.finish())
    assert found.content == ""
    return found.calls


@pytest.mark.parametrize("value", VALUES)
def test_any_string_that_the_grammar_allows_is_read_whole(frontend, value):
    text = (
        f"<tool_call>\n<function=w>\n<parameter=text>\n{value}\n</parameter>\n"
        "<parameter=days>\n-3\n</parameter>\n</function>\n</tool_call>"
    )
    assert accepts(frontend, SPEC, text)
    for size in (1, 3, 1000):
        assert calls_in(frontend, text, SPEC, size) == (("w", {"text": value, "days": -3}),)


PIECES = ["<tool_call>", "</tool_call>", "<function=w>", "</function>", "</parameter>", "\n", "\n"]
PIECES += ["<parameter=days>", "<parameter=text>", "a", " "]


def test_random_values_that_the_grammar_allows_are_read_whole(frontend):
    rng = random.Random(0)
    allowed = 0
    for _ in range(60):
        value = "".join(rng.choices(PIECES, k=rng.randrange(1, 12)))
        text = (
            f"<tool_call>\n<function=w>\n<parameter=text>\n{value}\n</parameter>\n"
            "</function>\n</tool_call>"
        )
        if accepts(frontend, SPEC, text):
            allowed += 1
            assert calls_in(frontend, text, SPEC) == (("w", {"text": value}),)
    assert allowed > 40
