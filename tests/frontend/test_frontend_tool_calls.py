"""Structure of tool calls: recovery, what ends a value, and how it all streams."""

import json

import pytest
from tool_call_scene import TOOLS, call, outcome_of, parse, split, tool, w

from ninfer.frontend.tool_calls import new_tool_call_parser
from ninfer.request import TextDelta, ToolCallArguments, ToolCallEnd, ToolCallStart

HEAD = "<tool_call>\n<function=w>\n"
TAIL = "</function>\n</tool_call>"
PARIS = "<parameter=city>\nParis\n</parameter>\n"
DAYS = "<parameter=days>\n3\n</parameter>\n"
X = w(city="Paris")

# Output, content, calls.
STRUCTURES = {
    "plain": (HEAD + PARIS + DAYS + TAIL, "", (w(city="Paris", days=3),)),
    "text before": ("Let me look.\n\n" + HEAD + PARIS + TAIL, "Let me look.", (X,)),
    "white space around": ("\n \n" + call() + "\n\n \t" + call() + "\n", "", (w(), w())),
    "text after": (HEAD + PARIS + TAIL + "\n\nDone. \n", "Done. \n", (X,)),
    "text between": (call() + "\nand\n" + call() + "\n.", "and.", (w(), w())),
    "back to back": (call() + call(("days", 1)), "", (w(), w(days=1))),
    "function alone": ("<function=w>\n" + PARIS + "</function>", "", (X,)),
    "function alone, text": ("a <function=w>\n" + PARIS + "</function> b", "ab", (X,)),
    "opener missing": ("<function=w>\n" + PARIS + TAIL, "", (X,)),
    "function alone, undeclared": (
        "<function=zz>\n</function>",
        "<function=zz>\n</function>",
        (),
    ),
    "no parameter closer": (
        HEAD + "<parameter=city>\nP\n<parameter=days>\n3\n</parameter></function>",
        "",
        (w(city="P", days=3),),
    ),
    "value ends at function": (HEAD + "<parameter=city>\nP\n" + TAIL, "", (w(city="P"),)),
    "value ends at function, end": (
        HEAD + "<parameter=city>\nP\n</function>\n",
        "",
        (w(city="P"),),
    ),
    "value ends at call": (HEAD + "<parameter=city>\nP\n</tool_call>", "", (w(city="P"),)),
    "value ends, next call": (
        HEAD + "<parameter=city>\nP\n</function>\n</tool_call>\n" + call(),
        "",
        (w(city="P"), w()),
    ),
    "no function closer": (HEAD + PARIS + "</tool_call>", "", (X,)),
    "no call closer": (HEAD + PARIS + "</function>", "", (X,)),
    "no closers": (HEAD + PARIS, "", (X,)),
    "no closers, no space": (HEAD + PARIS.rstrip(), "", (X,)),
    "closer cut short by the model": (HEAD + PARIS + "</func", "", (X,)),
    "call closer cut short": (HEAD + PARIS + "</function>\n</tool", "</tool", (X,)),
    "no closers, next call": (HEAD + PARIS + call(("days", 1)), "", (X, w(days=1))),
    "name ends at tag": ("<tool_call>\n<function=w</tool_call>", "", (w(),)),
    "name ends at line": ("<tool_call>\n<function=w\n" + PARIS + TAIL, "", (X,)),
    "name never ends": ("<tool_call>\n<function=w", "<tool_call>\n<function=w", ()),
    "name without end, undeclared": (
        "<tool_call>\n<function=zz\n</tool_call>",
        "<tool_call>\n<function=zz\n</tool_call>",
        (),
    ),
    "spaces": ("<tool_call> <function= w >" + PARIS + TAIL, "", (X,)),
    "quotes": ('<tool_call>\n<function="w">\n' + PARIS + TAIL, "", (X,)),
    "quoted key": (HEAD + "<parameter='city'>\nParis\n</parameter>\n" + TAIL, "", (X,)),
    "unpaired quote": (
        HEAD + "<parameter=it's>\n1\n</parameter>\n" + TAIL,
        "",
        (w(**{"it's": "1"}),),
    ),
    "one line": (HEAD + "<parameter=city>Paris</parameter>" + TAIL, "", (X,)),
    "all on one line": (
        "<tool_call><function=w><parameter=city>v</parameter><parameter=days>3</parameter>"
        "</function></tool_call>",
        "",
        (w(city="v", days=3),),
    ),
    "key ends at line": (HEAD + "<parameter=city\nParis\n</parameter>\n" + TAIL, "", (X,)),
    "no parameters": (HEAD + TAIL, "", (w(),)),
    "duplicate key, the first counts": (
        call(("city", "a"), ("days", 1), ("city", "b")),
        "",
        (w(city="a", days=1),),
    ),
    "duplicate closer": (
        HEAD + PARIS + "</parameter>\n" + DAYS + TAIL,
        "",
        (w(city="Paris", days=3),),
    ),
    "many closers": (HEAD + PARIS + "</parameter>\n" * 3 + TAIL, "", (X,)),
    "other order": (call(("days", 1), ("city", "a")), "", (w(days=1, city="a"),)),
    "unknown parameter": (call(("zzz", 7)), "", (w(zzz="7"),)),
    "unknown function": (call(("a", 1), name="zz"), "", (("zz", {"a": "1"}),)),
    "name with anything": (
        call(("a", "é"), name="数据.get-all v2"),
        "",
        (("数据.get-all v2", {"a": "é"}),),
    ),
    "bad, then good": (
        "<tool_call>\n<function=>\n</function>\n</tool_call>\n" + HEAD + PARIS + TAIL,
        "<tool_call>\n<function=>\n</function>\n</tool_call>",
        (X,),
    ),
    "JSON body": (
        '<tool_call>\n{"name": "w", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "w", "arguments": {}}\n</tool_call>',
        (),
    ),
    "code fence": ("```\n" + HEAD + PARIS + TAIL + "\n```", "``````", (X,)),
    "mentioned": ("I would write <tool_call> here.", "I would write <tool_call> here.", ()),
    "mentioned closers": ("</tool_call> and </parameter>.", "</tool_call> and </parameter>.", ()),
    "mentioned twice": ("<tool_call> <tool_call>" + PARIS, "<tool_call> <tool_call>" + PARIS, ()),
    "mentioned, then called": ("<tool_call> \n" + call(), "<tool_call>", (w(),)),
    "text in the call": (HEAD + "so: " + PARIS + TAIL, "so:", (X,)),
    "text in the call, no closers": (HEAD + "so: <b", "so: <b", (w(),)),
    "stray closers behind": (call() + "\n</function></tool_call></think>\n", "", (w(),)),
    "thought closed after all": (call() + "\n</think>\n\nDone", "Done", (w(),)),
    "nothing": ("", "", ()),
    "only space": (" \n", " \n", ()),
    "half tag": ("a <tool_c", "a <tool_c", ()),
    "half call": ("a <tool_call>\n<fun", "a <tool_call>\n<fun", ()),
    "comparison": ("if a<b: <tool", "if a<b: <tool", ()),
    "long name is none": (
        "<tool_call>\n<function=" + "n" * 300 + ">",
        "<tool_call>\n<function=" + "n" * 300 + ">",
        (),
    ),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_structure(name):
    text, content, calls = STRUCTURES[name]
    found = outcome_of(text)
    assert (found.content, found.calls) == (content, calls)


# The text of a parameter that holds tags, whole.
KEPT = {
    "closer in prose": "the tag </parameter> ends it\nand goes on",
    "closer at line start, text follows": "a\n</parameter>\ntext",
    "parameter in prose": "write <parameter=days> first",
    "undeclared at line start": "a\n<parameter=other>\nb",
    "given already": "a\n<parameter=city>\nb",
    "function closer": "a\n</function>\nb",
    "call closer": "a\n</tool_call>\nb",
    "call closer at the end": "a </tool_call>",
    "both closers, then text": "a\n</function>\n</tool_call>\nb",
    "opener": "say <tool_call> to call",
    "opener at the end": "a\n<tool_call>",
    "function": "a\n<function=w>\nb",
    "one-line parameters": "use\n<parameter=a>1</parameter> <parameter=b>2</parameter> so",
    "whole call": "An example:\n" + call(("city", "P"), ("days", 1)) + "\nand more",
    "whole call on one line": "a\n" + call(("k", "v")).replace("\n", "") + " b",
    "two calls": call(("a", 1)) + "\n" + call(name="zz"),
    "call in a call": call(("city", call(("city", "x")))),
    "half tags": "a </param <tool_call <function= </parameter",
    "think tags": "<think>a</think>",
    "comparisons": "if a < b and c <= d << 2",
    "pages": 'a <b> & "c" \\ </div> &lt;',
}


@pytest.mark.parametrize("name", KEPT)
def test_a_value_keeps_the_tags_in_it(name):
    value = KEPT[name]
    found = outcome_of("x\n" + call(("city", value), ("days", 3)) + "\n")
    assert (found.content, found.calls) == ("x", (w(city=value, days=3),))
    found = outcome_of(call(("zzz", value), name="unknown"))
    assert found.calls == (("unknown", {"zzz": value}),)


def test_a_call_in_a_value_without_end_is_never_a_shortened_success():
    value = "An example:\n<tool_call>\n<function=w>\n" + PARIS + TAIL.removesuffix("</tool_call>")
    for text in (call(("city", value)), call(("city", value)) + call()):
        assert w(city="An example:") not in outcome_of(text).calls
    assert outcome_of(call(("city", value))).calls == ()


def test_cut_anywhere_only_whole_calls_are_returned():
    text = "Look.\n\n" + call(("city", "P"), ("days", 3)) + "\n" + call(("opts", '{"a": 1}'))
    first, second = w(city="P", days=3), w(opts={"a": 1})
    ends = [text.index("</function>") + 11, text.rindex("</function>") + 11]
    for end in range(len(text)):
        for pieces in ([text[:end]], split(text[:end], 1)):
            found = parse(pieces, cut=True)
            assert found.calls == (first, second)[: sum(end >= place for place in ends)]
            assert found.content.startswith("Look."[:end])


def test_an_open_value_is_never_complete():
    for text in (
        HEAD + "<parameter=city>\nPar",
        HEAD + "<parameter=city>\n",
        HEAD + "<parameter=ci",
    ):
        for cut in (False, True):
            found = outcome_of(text, cut=cut)
            assert found.calls == () and found.content == "" and len(found.begun) == 1


def test_a_whole_value_needs_the_models_own_end():
    assert outcome_of(HEAD + PARIS, cut=True).calls == ()
    assert outcome_of(HEAD + PARIS, cut=False).calls == (X,)


def test_without_tools_there_is_no_parser():
    assert new_tool_call_parser(()) is None


# --- streaming ---


def events_of(text):
    """Events with the number of characters that were fed when they came."""
    parser = new_tool_call_parser(TOOLS)
    found = [(n, event) for n, c in enumerate(text, 1) for event in parser.feed(c)]
    return found + [(len(text), event) for event in parser.finish(cut=False)]


def test_text_is_shown_at_once_but_for_possible_tags_and_space():
    text = "ab  cd<to <tool_call> x"
    parser = new_tool_call_parser(TOOLS)
    shown = ""
    for count, letter in enumerate(text, 1):
        shown += "".join(event.text for event in parser.feed(letter))
        tag = text[len(shown) : count].lstrip()
        assert not tag or "<tool_call> <function=".startswith(tag)
    assert shown == text


def test_a_call_is_announced_as_soon_as_its_name_is_whole():
    text = call(("city", "P"))
    (count, start), *_ = events_of(text)
    assert isinstance(start, ToolCallStart) and start.name == "w"
    assert text[:count] == "<tool_call>\n<function=w>"
    assert not any(isinstance(e, ToolCallStart) for _, e in events_of("<tool_call>\n<function=>x"))


def test_strings_stream_and_other_values_come_whole():
    value = 'line\n  "two" \\ é🙂\n\n< </p </parameter'
    text = HEAD + f"<parameter=city>\n{value}\n</parameter>\n<parameter=opts>\n" + '{"a": 1}'
    sent = ""
    for count, event in events_of(text):
        if isinstance(event, ToolCallArguments):
            sent += event.fragment
        if sent.startswith('{"city":"') and count <= len(HEAD) + 17 + len(value):
            shown = json.loads(sent + '"}')["city"]
            held = text[len(HEAD) + 17 + len(shown) : count]
            assert value.startswith(shown)
            assert "\n</parameter>".startswith(held) or "</parameter>".startswith(held)
    assert sent == '{"city":' + json.dumps(value, ensure_ascii=False) + ',"opts":'


def test_the_call_ends_with_its_function():
    text = call(("city", "P"))
    ((count, end),) = [(n, e) for n, e in events_of(text) if isinstance(e, ToolCallEnd)]
    assert text[:count].endswith("</function>")
    assert end.call.arguments == {"city": "P"}


def test_fragments_are_compact_json_with_all_characters():
    found = outcome_of(call(("city", "é\n"), ("tags", '[1, "ü"]'), ("note", "null")))
    assert found.begun == (("w", '{"city":"é\\n","tags":[1,"ü"],"note":null}'),)


def test_parsers_share_nothing():
    one, two = new_tool_call_parser(TOOLS), new_tool_call_parser(TOOLS)
    events = [
        one.feed(HEAD),
        two.feed("<tool_call>\n<function=zz>\n"),
        one.feed(PARIS),
        two.feed(DAYS),
    ]
    ends = [one.feed(TAIL)[-1], two.feed(TAIL)[-1]]
    assert [end.call.name for end in ends] == ["w", "zz"]
    assert [end.call.arguments for end in ends] == [{"city": "Paris"}, {"days": "3"}]
    assert ends[0].call.id != ends[1].call.id
    assert all(not isinstance(event, TextDelta) for group in events for event in group)


def test_tools_that_are_no_functions_are_left_out():
    tools = ({"type": "custom"}, {"function": {"name": 3}}, {"function": None}, tool("f"))
    found = outcome_of("<function=f></function><function=3></function>", tools)
    assert (found.content, found.calls) == ("<function=3></function>", (("f", {}),))
