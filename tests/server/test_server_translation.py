"""Wishes on thinking and tools to what the engine is asked, without a server."""

from typing import Any

import pytest

from ninfer.engine import GenerationOptions
from ninfer.errors import ContextError
from ninfer.request import (
    GrammarSpec,
    JsonObjectSpec,
    JsonSchemaSpec,
    RegexSpec,
    TextDelta,
    ToolCallSpec,
    Usage,
)
from ninfer.server.answer import Answer, put_together, total
from ninfer.server.errors import (
    Refusal,
    anthropic_body,
    dump,
    error_body,
    fault_of,
    openai_body,
)
from ninfer.server.frame import hosts_of
from ninfer.server.keys import Key, KeyLimits, KeyRing
from ninfer.server.openai.chat_ask import choice_of
from ninfer.server.openai.fields import response_format_of
from ninfer.server.sse import data, event
from ninfer.server.thinking import Thinking, apply, nearest, one_of
from ninfer.server.tools import ToolChoice, check_choice, check_tools, constraint_of, without_hosted


class Text:
    """The text side of a template with these efforts."""

    def __init__(self, *efforts: str, preserves: bool = True) -> None:
        self.efforts = efforts
        self.offers_preserving = preserves


def tool(name: str, **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **function}}


@pytest.mark.parametrize(
    ("effort", "offered", "expected"),
    [
        ("minimal", ("low", "medium", "xhigh"), "low"),
        ("high", ("low", "medium", "xhigh"), "xhigh"),
        ("max", ("low", "medium", "xhigh"), "xhigh"),
        ("medium", ("low", "medium", "xhigh"), "medium"),
        ("high", (), None),
        ("low", ("none", "high"), "high"),
    ],
)
def test_efforts_that_a_template_lacks(effort: str, offered: Any, expected: str | None) -> None:
    assert nearest(effort, offered) == expected


def test_thinking_over_the_defaults() -> None:
    defaults = GenerationOptions(thinking=True, thinking_budget=100)
    text: Any = Text("low", "medium", "xhigh")
    options, template = apply(Thinking(), defaults, text, preserve=False)
    assert (options.thinking, options.thinking_budget) == (True, 100)
    assert (template.reasoning_effort, template.preserve_thinking) == (None, None)
    options, template = apply(Thinking(effort="none"), defaults, text, preserve=True)
    assert not options.thinking and template.reasoning_effort is None
    assert template.preserve_thinking is True
    options, template = apply(Thinking(effort="max", budget=7), defaults, text, preserve=False)
    assert (template.reasoning_effort, options.thinking_budget) == ("xhigh", 7)
    off = GenerationOptions(thinking=False)
    assert apply(Thinking(enabled=True), off, text, preserve=False)[0].thinking
    assert apply(Thinking(effort="low"), off, text, preserve=False)[0].thinking
    plain: Any = Text(preserves=False)
    assert apply(Thinking(preserve=True), off, plain, preserve=True)[1].preserve_thinking is None


def test_wishes_that_contradict_each_other() -> None:
    assert one_of(a=None, b=3, c=3) == 3 and one_of(a=None) is None
    with pytest.raises(Refusal, match=r"c \(4\) contradicts b \(3\)"):
        one_of(a=None, b=3, c=4)


def test_what_tools_and_choice_come_to() -> None:
    tools = [tool("a", parameters={"type": "object"}), tool("b", strict=True)]
    assert constraint_of([tool("a")], ToolChoice(), None) is None
    assert constraint_of([], ToolChoice(), RegexSpec("x")) == RegexSpec("x")
    assert constraint_of(tools, ToolChoice("none"), JsonObjectSpec()) == JsonObjectSpec()
    spec = constraint_of(tools, ToolChoice(), JsonObjectSpec())
    assert isinstance(spec, ToolCallSpec) and spec.answer == JsonObjectSpec()
    assert [rule.strict for rule in spec.tools] == [False, True]
    spec = constraint_of(tools, ToolChoice("required", ("b",), parallel=False), None)
    assert isinstance(spec, ToolCallSpec)
    assert (spec.required, spec.parallel, len(spec.tools)) == (True, False, 1)
    spec = constraint_of([tool("a")], ToolChoice(parallel=False), None)
    assert isinstance(spec, ToolCallSpec) and not spec.required
    with pytest.raises(Refusal, match="leaves no room"):
        constraint_of(tools, ToolChoice(), RegexSpec("x"))


def test_names_of_tools() -> None:
    check_tools([tool("mcp__server__tool.name"), tool("x" * 128)])
    for names in (["a b"], [""], ["x" * 129], ["a<b"], ["a", "a"]):
        with pytest.raises(Refusal, match=r"tools\[\d\]\.function\.name"):
            check_tools([tool(name) for name in names])
    hosted = [{"type": "web_search_preview"}, tool("a"), {"type": "file_search"}]
    assert without_hosted(hosted, ("web_search", "file_search")) == [tool("a")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, ToolChoice()),
        ("none", ToolChoice("none")),
        ({"type": "function", "function": {"name": "a"}}, ToolChoice("required", ("a",), False)),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool("a")]}},
            ToolChoice("auto", ("a",)),
        ),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"name": "a"}]},
            ToolChoice("required", ("a",)),
        ),
    ],
    ids=str,
)
def test_choices(given: Any, expected: ToolChoice) -> None:
    assert choice_of(given, parallel=True) == expected
    check_choice(expected, [tool("a")])


@pytest.mark.parametrize("given", [7, "any", {"type": "custom"}, {"type": "function"}, []], ids=str)
def test_choices_that_are_none(given: Any) -> None:
    with pytest.raises(Refusal, match="tool_choice"):
        choice_of(given, parallel=True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, JsonObjectSpec()),
        ({"type": "json_schema", "schema": {}}, JsonSchemaSpec({})),
        ({"type": "json_schema", "json_schema": {"schema": True}}, JsonSchemaSpec(True)),
        ({"type": "regex", "pattern": "a"}, RegexSpec("a")),
        ({"type": "grammar", "grammar": "g"}, GrammarSpec("g")),
    ],
    ids=str,
)
def test_forms(given: Any, expected: Any) -> None:
    assert response_format_of(given) == expected


def test_a_minute_and_a_place_of_a_key() -> None:
    now = [0.0]
    key = Key(1, KeyLimits(requests_per_minute=2, concurrent=1), lambda: now[0])
    with key.use(), pytest.raises(Refusal, match="1 requests at once"), key.use():
        pass
    now[0] = 30.0
    with key.use():
        pass
    with pytest.raises(Refusal) as found, key.use():
        pass
    assert found.value.headers["retry-after"] == "31"
    now[0] = 60.5
    with key.use():
        pass


def test_keys_of_any_characters() -> None:
    ring = KeyRing({"schlüssel": KeyLimits()})
    assert not ring.is_open and ring.find({}) is None
    assert ring.find({"x-api-key": "schlüssel"}) is not None
    assert ring.find({"authorization": "Bearer \udcff"}) is None


def test_hosts() -> None:
    assert "localhost" in hosts_of("127.0.0.1", ()) and "*" not in hosts_of("::1", ())
    assert hosts_of("0.0.0.0", ()) == {"*"}
    assert hosts_of("0.0.0.0", ("Box.Example",)) == {"box.example"}


def test_the_words_for_a_prompt_that_is_too_long() -> None:
    """Clients find these by regular expressions."""
    fault = fault_of(ContextError("too long", prompt_tokens=70, limit=64))
    text = openai_body(fault)["error"]["message"]
    assert "maximum context length is 64 tokens" in text and "resulted in 70 tokens" in text
    assert "reduce the length of the messages. (context_length_exceeded)" in text
    message = anthropic_body(fault, "r")["error"]["message"]
    assert message == "prompt is too long: 70 tokens > 64 maximum"


def test_shapes_of_errors_by_path() -> None:
    full = fault_of(Refusal("full", status=429, code="server_overloaded"))
    assert error_body(full, "/v1/chat/completions", "r")[0] == 429
    status, body = error_body(full, "/v1/messages", "r")
    assert status == 529 and b'"overloaded_error"' in body
    assert fault_of(KeyError("secret")).message.count("secret") == 0


def test_json_that_any_client_can_split() -> None:
    line = data({"a": "x\u2028y\x85z\u2029"}).decode()
    assert len(line.splitlines()) == 2 and "\\u2028" in line
    assert event({"type": "t", "a": 1}) == b'event: t\ndata: {"type":"t","a":1}\n\n'
    assert dump({"a": "\ud800"}) == b'{"a":"\\ud800"}'


def test_usage_of_several_prompts() -> None:
    usages = [Usage(10, 1, 0, 4), Usage(10, 2, 1, 4), Usage(20, 3, 0), Usage(20, 4, 0)]
    assert total(usages, prompts=2) == Usage(30, 10, 1, 4)
    assert total(usages[:2]) == Usage(10, 3, 1, 4)


def test_answers_are_put_together_by_number() -> None:
    answers = [Answer(), Answer()]
    events: Any = [(1, TextDelta("content", "b")), (0, TextDelta("reasoning", "a"))]
    put_together(events, answers)
    assert (answers[0].reasoning, answers[1].content) == (["a"], ["b"])
