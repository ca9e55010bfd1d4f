"""Message shapes of clients: what is accepted, how it is normalised, what is refused where."""

import pytest

from ninfer.errors import PromptError
from ninfer.frontend import parse_conversation
from ninfer.request import ContentPart, ToolCall

U = {"role": "user", "content": "q"}


def texts(messages):
    return [
        (message.role, "".join(part.text for part in message.content))
        for message in parse_conversation(messages).messages
    ]


def system(content, role="system"):
    return {"role": role, "content": content}


def call(name="f", arguments=None, call_id="c1"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls):
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(call_id, content="r"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_developer_is_system():
    assert texts([system("d", "developer"), U]) == [("system", "d"), ("user", "q")]


def test_leading_system_messages_become_one():
    messages = [system("a"), system("b", "developer"), system(" "), U]
    assert texts(messages) == [("system", "a\n\nb"), ("user", "q")]


def test_late_system_message_is_folded_into_the_leading_one():
    assert texts([U, system("late"), U]) == [("system", "late"), ("user", "q"), ("user", "q")]
    assert texts([system("a"), U, system("b")])[0] == ("system", "a\n\nb")


def test_content_forms():
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]
    parts += [{"type": "output_text", "text": "c"}, {"type": "refusal", "refusal": "d"}]
    for content, expected in ((None, ""), ("", ""), ([], ""), ("x", "x"), (parts, "abcd")):
        assert texts([{"role": "user", "content": content}]) == [("user", expected)]
    assert texts([{"role": "user"}]) == [("user", "")]


@pytest.mark.parametrize("source", ["a.png", {"url": "a.png"}])
@pytest.mark.parametrize(
    ("kind", "member", "expected"),
    [
        ("image", "image", "image"),
        ("image_url", "image_url", "image"),
        ("image", "image_url", "image"),
        ("input_image", "image_url", "image"),
        ("video", "video", "video"),
        ("video_url", "video_url", "video"),
    ],
)
def test_media_parts(kind, member, expected, source):
    (message,) = parse_conversation(
        [{"role": "user", "content": [{"type": kind, member: source}]}]
    ).messages
    assert message.content == (ContentPart(expected, source="a.png"),)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": [1, "é"]}', {"a": [1, "é"]}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (None, {}),
        ("null", {}),
        (" {} ", {}),
    ],
)
def test_arguments_are_objects(arguments, expected):
    messages = parse_conversation([U, calling(call(arguments=arguments))]).messages
    assert messages[1].tool_calls == (ToolCall("f", expected, "c1"),)
    assert messages[1].content == ()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"reasoning_content": ""}, ""),
        ({"reasoning_content": None, "reasoning": "r"}, "r"),
        ({"reasoning_content": "r", "reasoning": "r"}, "r"),
        ({"content": [{"type": "thinking", "thinking": "r"}, {"type": "text", "text": "a"}]}, "r"),
    ],
)
def test_reasoning_under_its_names(fields, expected):
    turn = {"role": "assistant", "content": "a"} | fields
    message = parse_conversation([U, turn]).messages[1]
    assert message.reasoning == expected
    assert message.content == (ContentPart("text", "a"),)


def test_results_follow_the_order_of_the_calls():
    calls = calling(call(call_id="c1"), call(call_id="c2"))
    turns = [U, calls, result("c2", "second"), result("c1", "first"), U]
    assert [text for _, text in texts(turns)] == ["q", "", "first", "second", "q"]
    turns[3] = result("other", "first")
    assert [text for _, text in texts(turns)] == ["q", "", "second", "first", "q"]


def test_tools_stay_the_clients_objects():
    function = {"name": "f", "strict": True, "parameters": {"z": 1, "a": 2}}
    nested = {"function": function, "type": "function"}
    flat = {"type": "function", "strict": True, "name": "f", "parameters": {"z": 1}}
    anthropic = {"name": "f", "description": "d", "input_schema": {"z": 1}}
    tools = parse_conversation([U], [nested, flat, anthropic]).tools
    assert tools[0] is nested
    assert tools[1] == {"type": "function", "function": {"name": "f", "parameters": {"z": 1}}}
    assert tools[2]["function"] == {"name": "f", "description": "d", "parameters": {"z": 1}}


BAD_PARTS = {
    "messages[0].content is 5;": 5,
    "messages[0].content is {'a': 1};": {"a": 1},
    "messages[0].content[0] is 'text';": ["text"],
    "messages[0].content[1].type is 'audio';": [{"type": "text", "text": ""}, {"type": "audio"}],
    "messages[0].content[0].type is None;": [{"text": "a"}],
    "messages[0].content[0].type is ['text'];": [{"type": ["text"], "text": "a"}],
    "messages[0].content[0].type is {};": [{"type": {}}],
    "messages[0].content[0].text is 7;": [{"type": "text", "text": 7}],
    "messages[0].content[0].image_url is None;": [{"type": "image_url", "image_url": {}}],
}


@pytest.mark.parametrize("message", BAD_PARTS)
def test_bad_content_is_refused_by_place_and_value(message):
    with pytest.raises(PromptError) as caught:
        parse_conversation([{"role": "user", "content": BAD_PARTS[message]}])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "messages is empty"),
        (None, "messages is None; it must be a list"),
        ("hi", "messages is 'hi'"),
        ([3], r"messages\[0\] is 3"),
        ([{"role": "function", "content": ""}], r"messages\[0\].role is 'function'"),
        ([{"content": ""}], r"messages\[0\].role is None"),
        ([{"role": ["user"], "content": ""}], r"messages\[0\].role is \['user'\]"),
        ([result("c")], "the first turn is a tool result"),
        ([system("s"), result("c")], "the first turn is a tool result"),
        ([U, result(None)], r"messages\[1\].tool_call_id is None"),
        ([system([{"type": "image", "image": "a"}]), U], "a system message holds"),
        ([{**U, "tool_calls": [call()]}], r"messages\[0\].tool_calls"),
        ([{**U, "function_call": {}}], r"messages\[0\].function_call"),
        (
            [U, calling(call(arguments="{"))],
            r"messages\[1\].tool_calls\[0\].function.arguments: not",
        ),
        ([U, calling(call(arguments="[1]"))], "must be a JSON object"),
        ([U, calling(call(arguments='{"a": NaN}'))], "NaN is not JSON"),
        ([U, calling(call(arguments='{"a": 1, "a": 2}'))], "'a' stands twice"),
        ([U, calling(call(arguments="[" * 100000))], "nested too deeply"),
        ([U, calling(call(arguments=3))], "must be a JSON object"),
        ([U, calling(call(name=None))], r"function.name is None"),
        ([U, calling({"id": "c"})], r"tool_calls\[0\].function is None"),
        ([U, calling(call(call_id=4))], r"tool_calls\[0\].id is 4"),
        ([U, {"role": "assistant", "content": "", "reasoning": 1}], "reasoning_content is 1"),
        (
            [U, {"role": "assistant", "reasoning": "a", "reasoning_content": "b"}],
            "contradicts",
        ),
    ],
)
def test_messages_that_cannot_be_rendered_are_refused(messages, message):
    with pytest.raises(PromptError, match=message) as caught:
        parse_conversation(messages)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ({}, "tools is {}"),
        ([1], r"tools\[0\] is 1"),
        ([{"type": "web_search"}], r"tools\[0\].type is 'web_search'"),
        ([{"type": "function"}], r"tools\[0\].name is None"),
        ([{"type": "function", "function": {}}], r"tools\[0\].function.name is None"),
    ],
)
def test_tools_that_cannot_be_offered_are_refused(tools, message):
    with pytest.raises(PromptError, match=message):
        parse_conversation([U], tools)
