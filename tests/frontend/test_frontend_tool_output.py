"""Tool calls among the other text of an answer: thoughts, stop strings, token ids, raw output."""

import random
from dataclasses import replace

import pytest
from tool_call_scene import TOOLS, call, read, w

from ninfer.convert.byte_tokenizer import build_tokenizer
from ninfer.frontend import Frontend, parse_conversation
from ninfer.frontend.reasoning import ReasoningSplitter
from ninfer.request import PreparedPrompt, StopRules, ToolCallStart

FRONTEND = Frontend.from_resources(build_tokenizer(800))
TOKENIZER = FRONTEND.tokenizer
BYTES = {TOKENIZER.token_bytes(i): i for i in range(256)}
CALL = call(("city", "P"))
P = (w(city="P"),)


def parser(reasoning=True, stop=None, raw=False, tools=TOOLS):
    return FRONTEND.new_output_parser(PreparedPrompt("", (), reasoning, tools=tools), stop, raw=raw)


def spelled(text):
    """Ids that spell a text byte by byte, tags included."""
    return [BYTES[bytes([value])] for value in text.encode()]


def groups_of(text):
    rng = random.Random(text)
    for ids in (TOKENIZER.encode(text), spelled(text)):
        yield [ids]
        for size in (1, 2, 4):
            yield [ids[i : i + size] for i in range(0, len(ids), size)]
        places = sorted(rng.choices(range(len(ids) + 1), k=4))
        yield [ids[a:b] for a, b in zip([0, *places], [*places, len(ids)], strict=True)]


def events_of(output, groups, cut=False):
    events = [event for group in groups for event in output.feed(group)]
    return events + output.finish(cut=cut)


# Output that starts in a thought; reasoning, content, calls.
THOUGHTS = {
    "call behind the thought": ("R</think>\n\nC\n\n" + CALL, "R", "C", P),
    "call ends the thought": ("R\n" + CALL, "R", "", P),
    "call at once": (CALL, "", "", P),
    "call, then more": ("R\n" + CALL + "\nmore</think>C", "R", "more</think>C", P),
    "call, then the closer": ("R\n\n" + CALL + "\n</think>\n\nC", "R", "C", P),
    "two calls in the thought": ("R" + CALL + "\n" + CALL + "</think>", "R", "", P * 2),
    "call on one line": (
        "R <tool_call><function=w><parameter=city>P</parameter></function></tool_call>",
        "R",
        "",
        P,
    ),
    "name ends at a line": ("R<tool_call>\n<function=w\n</function>", "R", "", (w(),)),
    "quoted name": ('R<tool_call>\n<function="w">\n</function>', "R", "", (w(),)),
    "closer in a value": (
        "R" + call(("city", "a</think>b")),
        "R",
        "",
        (w(city="a</think>b"),),
    ),
    "mentioned": ("use <tool_call> now</think>C", "use <tool_call> now", "C", ()),
    "in back-quotes": (
        "`<tool_call>` `<function=w>`</think>C",
        "`<tool_call>` `<function=w>`",
        "C",
        (),
    ),
    "undeclared": (
        "<tool_call>\n<function=name>\n</think>" + CALL,
        "<tool_call>\n<function=name>",
        "",
        P,
    ),
    "function alone": ("a <function=w> b</think>C", "a <function=w> b", "C", ()),
    "undeclared, then declared": (
        "<tool_call><function=q>" + CALL,
        "<tool_call><function=q>",
        "",
        P,
    ),
    "two openers": ("<tool_call>" + CALL, "<tool_call>", "", P),
    "much space": ("<tool_call>" + " " * 64 + "<function=w></function>", "", "", (w(),)),
    "fake start": ("a<tool_c</think>C", "a<tool_c", "C", ()),
    "never closed": ("a <tool_call>\n<function=w", "a <tool_call>\n<function=w", "", ()),
    "repeated opener": ("<think>R" + CALL, "R", "", P),
}


@pytest.mark.parametrize("name", THOUGHTS)
def test_calls_and_thoughts(name):
    text, reasoning, content, calls = THOUGHTS[name]
    for groups in groups_of(text):
        found = read(events_of(parser(), groups))
        assert (found.reasoning, found.content, found.calls) == (reasoning, content, calls)


@pytest.mark.parametrize("name", THOUGHTS)
def test_without_tools_call_tags_are_text(name):
    text = THOUGHTS[name][0]
    for groups in groups_of(text):
        output = parser(tools=())
        found = read(events_of(output, groups))
        assert found.begun == ()
        shown = found.reasoning + found.content
        plain = text.removeprefix("<think>").replace("</think>", "", 1)
        assert "".join(shown.split()) == "".join(plain.split())


def test_a_thought_holds_back_no_more_than_a_possible_call():
    text = "see <tool_call> <function=a> and <tool_call> x </thin"
    splitter = ReasoningSplitter(True, {"w"})
    shown = ""
    for count, letter in enumerate(text, 1):
        shown += "".join(delta.text for delta in splitter.feed(letter))
        held = text[len(shown) : count]
        assert not held or held.startswith(("<tool_call>", "<function=")) or len(held) < 11
    assert splitter.flush()[0].text == "</thin" and shown == text[:-6]


def test_reasoning_tokens_end_with_the_beginning_of_the_call():
    ids = [*spelled("abc"), *spelled(CALL)]
    for size in (1, 3, 99):
        output = parser()
        events_of(output, [ids[i : i + size] for i in range(0, len(ids), size)])
        assert output.tokens == len(ids)
        assert output.reasoning_tokens == 3 + len("<tool_call>\n<function=w>")


@pytest.mark.parametrize(
    ("text", "stops", "content", "calls", "matched"),
    [
        (call(("city", "a STOP b")) + "c STOP d", ("STOP",), "c ", (w(city="a STOP b"),), True),
        ("a" + CALL + "b", ("function", "</tool_call>", "P"), "ab", P, False),
        ("a ST" + CALL + "OP", ("STOP",), "a STOP", P, False),
        ("a STOP" + CALL, ("STOP",), "a ", (), True),
        ("a\n\n" + CALL + "b", ("\n\n",), "ab", P, False),
        ("a\n\nb" + CALL, ("\n\n",), "a", (), True),
        ("a <tool_call> b", ("<tool_call>",), "a ", (), True),
        (CALL + "\nEN", ("END",), "EN", P, False),
        (CALL + "STOP" + CALL, ("STOP",), "", P, True),
        ("a <tool", ("<tool",), "a ", (), True),
    ],
)
def test_stop_strings_match_in_content_only(text, stops, content, calls, matched):
    for groups in groups_of(text):
        output = parser(False, StopRules(content=stops))
        found = read(events_of(output, groups))
        assert (found.content, found.calls) == (content, calls)
        assert output.stopped is matched


def test_reasoning_stop_strings_end_before_a_call():
    for groups in groups_of("a ST" + CALL + "OP"):
        output = parser(True, StopRules(reasoning=("STOP", "P")))
        found = read(events_of(output, groups))
        assert (found.reasoning, found.calls, output.stopped) == ("a ST", P, False)


def test_raw_output_has_no_calls():
    text = "R</think>" + CALL
    found = read(events_of(parser(raw=True), [TOKENIZER.encode(text)]))
    assert (found.content, found.begun) == (text, ())


def test_neighbouring_fragments_are_joined():
    events = parser(False).feed(TOKENIZER.encode("a b" + call(("city", "x y\nz"), ("days", 1))))
    assert [type(event).__name__ for event in events] == [
        "TextDelta",
        "ToolCallStart",
        "ToolCallArguments",
        "ToolCallEnd",
    ]
    assert events[2].fragment == '{"city":"x y\\nz","days":1}'


def test_characters_split_over_ids_arrive_whole():
    output = parser(False)
    found = read(events_of(output, [[i] for i in spelled(call(("city", "数据🙂")))]))
    assert found.calls == (w(city="数据🙂"),)
    half = spelled("<function=w>\n<parameter=city>\n🙂")[:-2]
    assert "\ufffd" in read(events_of(parser(False), [half])).begun[0][1]


def test_the_prompt_carries_the_tools():
    messages = [{"role": "user", "content": "q"}]
    flat = {"name": "f", "input_schema": {"properties": {"n": {"type": "integer"}}}}
    prompt = FRONTEND.prepare(parse_conversation(messages, [flat]))
    ids = TOKENIZER.encode("R</think>" + call(("n", "7"), name="f"))
    assert read(events_of(FRONTEND.new_output_parser(prompt), [ids])).calls == (("f", {"n": 7}),)
    none = FRONTEND.new_output_parser(replace(prompt, tools=()))
    assert not any(isinstance(event, ToolCallStart) for event in events_of(none, [ids]))
    assert FRONTEND.prepare(parse_conversation(messages)).tools == ()


def test_a_call_is_rendered_back_as_it_was_generated():
    text = call(("city", "a\n  b"), ("days", 3), ("opts", '{"k": [1, 2.5, null]}'), ("on", "true"))
    (event,) = [e for e in parser(False).feed(TOKENIZER.encode(text)) if hasattr(e, "call")]
    turn = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": event.call.id, "function": {"name": "w", "arguments": event.call.arguments}}
        ],
    }
    messages = [{"role": "user", "content": "q"}, turn]
    assert text + "<|im_end|>" in FRONTEND.prepare(parse_conversation(messages, list(TOOLS))).text
