"""Tool calls that users lost in other engines.

The names carry the ids under which the project keeps those reports, or the report's own.
"""

import pytest
from tool_call_scene import TOOLS, call, outcome_of, parse, read, split, tool, w

from ninfer.convert.byte_tokenizer import build_tokenizer
from ninfer.frontend import Frontend, parse_conversation
from ninfer.frontend.tool_calls import new_tool_call_parser
from ninfer.request import TextDelta, ToolCallArguments, ToolCallEnd, ToolCallStart

HEAD = "<tool_call>\n<function=w>\n"
TAIL = "</function>\n</tool_call>"


@pytest.fixture(scope="module")
def own() -> Frontend:
    return Frontend.from_resources(build_tokenizer(800))


def answer(frontend, ids, size=1):
    messages = [{"role": "user", "content": "q"}]
    output = frontend.new_output_parser(frontend.prepare(parse_conversation(messages, list(TOOLS))))
    events = [e for i in range(0, len(ids), size) for e in output.feed(ids[i : i + size])]
    return read(events + output.finish())


def test_a1_python_spelling_of_booleans():
    tools = (tool("f", {"include_body": {"type": "boolean"}, "text": {"type": "string"}}),)
    found = outcome_of(call(("include_body", "True"), ("text", "True"), name="f"), tools)
    assert found.calls == (("f", {"include_body": True, "text": "True"}),)


def test_a2_drifted_calls_are_recovered_only_if_whole(own):
    assert outcome_of(HEAD + "</function>").calls == (w(),)
    assert outcome_of(HEAD + "<parameter=city>\nhalf").calls == ()
    found = answer(own, own.tokenizer.encode("R\n" + call(("city", "P")) + "\n</think>\n\nC"))
    assert (found.reasoning, found.content, found.calls) == ("R", "C", (w(city="P"),))


def test_a4_a_file_about_the_syntax_is_written_whole():
    page = (
        "# Calls\n\n```\n" + call(("city", "Paris"), ("days", 3)) + "\n```\n\nA value ends at"
        " `</parameter>`, a call at `</tool_call>`.\n"
    )
    assert outcome_of(call(("city", page), ("days", 1))).calls == (w(city=page, days=1),)


@pytest.mark.parametrize("size", [1, 30, 1000])
def test_a5_vllm_34919_the_last_value_and_all_closers_in_one_piece(size):
    text = HEAD + "<parameter=city>\na </parameter> b\nlast\n</parameter>\n" + TAIL
    cut = text.index("last")
    found = parse([*split(text[:cut], size), text[cut:]])
    assert found.calls == (w(city="a </parameter> b\nlast"),)


def test_a7_ollama_12357_shell_text_is_literal():
    value = "cd a && cat <f | grep '&amp;' > \"$x\""
    assert outcome_of(call(("city", value))).calls == (w(city=value),)


def test_a8_ollama_17914_a_dropped_closer_costs_nothing():
    text = HEAD + "<parameter=city>\na\n<parameter=days>\n3\n</parameter>\n" + TAIL
    assert outcome_of(text).calls == (w(city="a", days=3),)


def test_a10_vllm_39056_a_call_in_an_open_thought_does_not_vanish(own):
    found = answer(own, own.tokenizer.encode("hm " + call(("city", "P"))), 3)
    assert (found.reasoning, found.calls) == ("hm", (w(city="P"),))


def test_a11_prose_that_mentions_the_opener_is_not_silent():
    parser = new_tool_call_parser(TOOLS)
    text = "Use the <tool_call> tag to " + "call things " * 1000
    shown = ""
    for count, letter in enumerate(text, 1):
        shown += "".join(event.text for event in parser.feed(letter))
        assert count - len(shown) <= len(" <tool_call> ")


def test_a13_vllm_30439_long_arguments_arrive_while_they_are_generated():
    parser = new_tool_call_parser(TOOLS)
    value = "some line of code\n" * 230
    sent = 0
    for count, letter in enumerate(HEAD + f"<parameter=city>\n{value}", 1):
        for event in parser.feed(letter):
            sent += len(event.fragment) if isinstance(event, ToolCallArguments) else 0
        assert count - sent < 60


def test_a14_vllm_58105_spelled_tags_equal_special_ids(own):
    text = "R</think>\n\n" + call(("city", "P"))
    by_bytes = {own.tokenizer.token_bytes(i): i for i in range(256)}
    spelled = [by_bytes[bytes([value])] for value in text.encode()]
    whole = own.tokenizer.encode(text)
    assert own.tokenizer.added["<tool_call>"] in whole
    assert not set(spelled) & set(own.tokenizer.added.values())
    assert answer(own, spelled) == answer(own, whole)
    assert answer(own, whole).calls == (w(city="P"),)


def test_a16_a_tag_without_its_first_character():
    found = outcome_of("\ntool_call>\n<function=w>\n" + TAIL)
    assert (found.content, found.calls) == ("\ntool_call>", (w(),))


@pytest.mark.parametrize("offset", range(4))
def test_a17_several_tokens_in_a_piece(own, offset):
    ids = own.tokenizer.encode("</think>" + call(("city", "P"), ("days", 3)) + call())
    assert answer(own, [*own.tokenizer.encode("a" * offset), *ids], 4).calls == (
        w(city="P", days=3),
        w(),
    )


def test_a19_two_streams_at_once():
    one, two = new_tool_call_parser(TOOLS), new_tool_call_parser(TOOLS)
    text, other = call(("city", "A" * 50)), call(("city", "B" * 50), ("days", 1))
    found = {id(one): [], id(two): []}
    for place in range(len(other)):
        for parser, letters in ((one, text), (two, other)):
            found[id(parser)] += parser.feed(letters[place : place + 1])
    assert read(found[id(one)]).calls == (w(city="A" * 50),)
    assert read(found[id(two)]).calls == (w(city="B" * 50, days=1),)


def test_a20_llama_cpp_24807_doubled_closer_and_24202_other_order():
    text = (
        HEAD + "<parameter=days>\n1\n</parameter>\n</parameter>\n<parameter=city>\na\n</parameter>"
    )
    assert outcome_of(text + "\n" + TAIL).calls == (w(days=1, city="a"),)


def test_a22_sglang_27640_union_types_and_vllm_37831_references():
    schema = {
        "flag": {"type": ["boolean", "null"]},
        "obj": {"anyOf": [{"type": "object"}, {"type": "null"}]},
        "ref": {"$ref": "#/$defs/R"},
    }
    tools = (tool("f", schema, **{"$defs": {"R": {"type": "object"}}}),)
    found = outcome_of(
        call(("flag", "false"), ("obj", '{"a":1}'), ("ref", '{"b": [2]}'), name="f"), tools
    )
    assert found.calls == (("f", {"flag": False, "obj": {"a": 1}, "ref": {"b": [2]}}),)
    found = outcome_of(call(("flag", "null"), ("obj", "null"), name="f"), tools)
    assert found.calls == (("f", {"flag": None, "obj": None}),)


def test_a23_a_value_that_does_not_convert_is_delivered_as_it_is():
    assert outcome_of(call(("days", "2026-01-15"))).calls == (w(days="2026-01-15"),)


def test_a25_any_template_has_the_parser_of_its_family():
    template = "{% for m in messages %}{{ m.content }}{% endfor %}<|im_start|>assistant\n"
    frontend = Frontend.from_resources(build_tokenizer(800), template)
    ids = frontend.tokenizer.encode(call(("city", "P")))
    assert answer(frontend, ids).calls == (w(city="P"),)


def test_a26_a_call_of_an_undeclared_tool_is_passed_on_at_once():
    parser = new_tool_call_parser((tool("read"),))
    events = [e for letter in "<tool_call>\n<function=task>" for e in parser.feed(letter)]
    assert [event.name for event in events] == ["task"]


def test_vllm_56077_all_calls_of_one_step():
    parser = new_tool_call_parser(TOOLS)
    events = parser.feed("\n".join(call(("days", n)) for n in range(3)))
    assert [e.index for e in events if isinstance(e, ToolCallStart)] == [0, 1, 2]
    assert [e.call.arguments["days"] for e in events if isinstance(e, ToolCallEnd)] == [0, 1, 2]


def test_vllm_58227_a_name_without_its_end():
    assert outcome_of("<tool_call>\n<function=w</tool_call>").calls == (w(),)
    text = "<tool_call>\n<function=w\n<parameter=city>\nP\n</parameter>\n" + TAIL
    assert outcome_of(text).calls == (w(city="P"),)
    assert outcome_of("<tool_call>\n<function=w").calls == ()


def test_vllm_48753_indentation_belongs_to_the_value():
    value = "\tif x:\n\t\ty  \n\n\n"
    assert outcome_of(call(("city", value))).calls == (w(city=value),)


def test_vllm_36774_a_bad_call_does_not_cost_the_good_one():
    found = outcome_of("<tool_call>\n<function=\n</tool_call>\n" + call(("city", "P")))
    assert found.calls == (w(city="P"),)


def test_rapid_mlx_1600_no_wrapper_quotes():
    text = "<tool_call>\n<function='w'>\n<parameter=\"city\">\n'P'\n</parameter>\n" + TAIL
    assert outcome_of(text).calls == (w(city="'P'"),)


def test_lmstudio_1592_a_mention_in_a_thought_stays_there(own):
    text = "The `<tool_call>` block holds `<function=w>`.</think>Done"
    found = answer(own, own.tokenizer.encode(text), 2)
    assert found.reasoning == "The `<tool_call>` block holds `<function=w>`."
    assert (found.content, found.begun) == ("Done", ())


def test_content_events_never_hold_markup_of_a_call():
    parser = new_tool_call_parser(TOOLS)
    text = "a\n" + call(("city", "P")) + "\n" + call()
    shown = [e.text for letter in text for e in parser.feed(letter) if isinstance(e, TextDelta)]
    assert "".join(shown) == "a"
