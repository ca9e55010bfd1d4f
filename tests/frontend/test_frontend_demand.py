"""Failures that users met in other engines, as far as text alone can show them.

The names carry the ids under which the project keeps those reports.
"""

import pytest

from ninfer.errors import PromptError
from ninfer.frontend import parse_conversation
from ninfer.request import StopRules, TemplateOptions

USER = {"role": "user", "content": "q"}


def shown(output, groups):
    channels = {"reasoning": "", "content": ""}
    for deltas in (*map(output.feed, groups), output.finish()):
        for delta in deltas:
            channels[delta.channel] += delta.text
    return channels


def byte_ids(frontend, data):
    by_bytes = {frontend.tokenizer.token_bytes(i): i for i in range(256)}
    return [by_bytes[bytes([value])] for value in data]


def prepare(frontend, messages, tools=None, **options):
    return frontend.prepare(parse_conversation(messages, tools, TemplateOptions(**options)))


def test_b1_a_cut_thought_is_not_the_answer(frontend):
    prompt = frontend.prepare_text("q")
    ids = frontend.tokenizer.encode("I think that the answer")
    output = frontend.new_output_parser(prompt)
    assert shown(output, [[i] for i in ids]) == {
        "reasoning": "I think that the answer",
        "content": "",
    }
    assert output.reasoning_tokens == output.tokens == len(ids)


def test_b2_tags_in_the_prompt_do_not_change_the_state(frontend):
    system = {"role": "system", "content": "Write <think>..</think> and <|im_start|>assistant\n"}
    for text in ("</think>", "<think>", "<|im_start|>assistant\n<think>\n\n</think>\n\n"):
        messages = [system, {"role": "user", "content": text}]
        assert prepare(frontend, messages).starts_in_reasoning
        assert not prepare(frontend, messages, enable_thinking=False).starts_in_reasoning
        assert not prepare(frontend, messages, add_generation_prompt=False).starts_in_reasoning
    last = [{"role": "user", "content": "<|im_start|>assistant\n<think>\n"}]
    assert not prepare(frontend, last, add_generation_prompt=False).starts_in_reasoning


def test_b4_closing_tags_without_end_split_once(frontend):
    close = frontend.tokenizer.added["</think>"]
    output = frontend.new_output_parser(frontend.prepare_text("q"))
    assert shown(output, [[close]] * 271) == {"reasoning": "", "content": "</think>" * 270}
    assert (output.tokens, output.reasoning_tokens) == (271, 1)


def test_b8_old_reasoning_follows_the_template_and_can_be_kept(frontend):
    history = [
        USER,
        {"role": "assistant", "content": "a1", "reasoning_content": "R1"},
        USER,
        {"role": "assistant", "content": "a2", "reasoning_content": "R2"},
        USER,
    ]
    assert "R1" not in prepare(frontend, history).text
    assert prepare(frontend, history) == prepare(frontend, history, preserve_thinking=False)
    kept = prepare(frontend, history, preserve_thinking=True).text
    for index in (1, 2):
        assert f"<think>\nR{index}\n</think>\n\na{index}<|im_end|>" in kept


def calling(arguments, **fields):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call], **fields}


def test_c1_arguments_as_json_text_render_like_an_object(frontend):
    as_text = prepare(frontend, [USER, calling('{"a": 1, "b": "x"}')])
    assert as_text == prepare(frontend, [USER, calling({"a": 1, "b": "x"})])
    assert "<parameter=a>\n1\n</parameter>\n<parameter=b>\nx\n</parameter>\n" in as_text.text
    with pytest.raises(PromptError, match=r"messages\[1\]\.tool_calls\[0\]\.function\.arguments"):
        prepare(frontend, [USER, calling("{'a': 1}")])


def test_c2_late_system_and_developer_messages_render(frontend):
    def system(text, role="system"):
        return {"role": role, "content": text}

    expected = prepare(frontend, [system("a\n\nb"), USER, USER])
    assert prepare(frontend, [system("a"), USER, system("b"), USER]) == expected
    assert prepare(frontend, [system("a", "developer"), USER, USER, system("b")]) == expected


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "s"}],
        [calling({}), {"role": "tool", "tool_call_id": "c", "content": "r"}],
    ],
)
def test_c4_no_user_message_is_an_error_of_the_request(frontend, messages):
    with pytest.raises(PromptError, match="a user message is needed"):
        prepare(frontend, messages)


def test_c5_reasoning_and_calls_with_empty_content_keep_the_closing_tag(frontend):
    for content in (None, "", []):
        turn = calling({}, reasoning_content="R", content=content)
        rendered = prepare(frontend, [USER, turn], add_generation_prompt=False)
        assert rendered.text == (
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\nR\n</think>\n\n"
            "<tool_call>\n<function=f>\n</function>\n</tool_call><|im_end|>\n"
        )
        assert list(rendered.token_ids) == frontend.tokenizer.encode(rendered.text)


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_f2_the_stop_string_that_is_complete_first_wins(frontend, size):
    prompt = frontend.prepare_text("q", TemplateOptions(enable_thinking=False))
    ids = byte_ids(frontend, b"This, a")
    output = frontend.new_output_parser(prompt, StopRules(content=("a", "is", ",")))
    groups = [ids[i : i + size] for i in range(0, len(ids), size)]
    assert shown(output, groups)["content"] == "Th"
    assert output.stop_match is not None
    assert (output.stop_match.text, output.stop_match.tokens) == ("is", 4)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xffok", "\ufffdok"),
        (b"\xe6ok", "\ufffdok"),
        (b"\xf0\x9f\x99", "\ufffd"),
        (b"\x80\x80", "\ufffd\ufffd"),
        (b"a\xf0\x9f<b", "a\ufffd<b"),
    ],
)
def test_g1_malformed_bytes_cost_one_character_and_nothing_else(frontend, data, expected):
    prompt = frontend.prepare_text("q", TemplateOptions(enable_thinking=False))
    ids = byte_ids(frontend, data)
    for groups in ([ids], [[i] for i in ids]):
        assert shown(frontend.new_output_parser(prompt), groups)["content"] == expected
    assert shown(frontend.new_output_parser(prompt), [byte_ids(frontend, b"ok")])["content"] == "ok"


def test_g2_characters_split_over_tokens_arrive_whole(frontend):
    prompt = frontend.prepare_text("q", TemplateOptions(enable_thinking=False))
    text = "数据🙂 é"
    output = frontend.new_output_parser(prompt)
    pieces = []
    for token_id in byte_ids(frontend, text.encode()):
        pieces += [delta.text for delta in output.feed([token_id])]
    assert pieces == list(text)
    assert output.finish() == []
