"""Training tokens are serving tokens: prompts, whole conversations, what the model must write."""

import random

import numpy as np
import pytest

from ninfer.convert.byte_tokenizer import ADDED_TOKENS
from ninfer.frontend import Frontend
from ninfer.frontend.media import SourceRules
from ninfer.frontend.normalize import parse_conversation
from ninfer.models.positions import mrope_positions
from ninfer.request import TemplateOptions, TextDelta, ToolCallEnd
from recipes.tiny import tokenizer
from recipes.tiny.build_suite import item
from recipes.tiny.encode import TOKENIZER_FOLDER, Encoder, read_resources
from recipes.tiny.sample import Sample
from recipes.tiny.scenes import VISION_TASKS
from recipes.tiny.tasks import TEXT_TASKS
from recipes.tiny.tasks.sentences import sentence


@pytest.fixture(scope="module")
def encoder():
    return Encoder()


@pytest.fixture(scope="module")
def frontend():
    return Frontend.from_resources(read_resources(TOKENIZER_FOLDER), vision=True)


def drawn(task, count=15):
    rng = random.Random(task.__module__)
    return [task(rng) for _ in range(count)]


def served(frontend, sample, messages=None):
    """What the engine makes of the messages before the answer."""
    options = TemplateOptions(enable_thinking=sample.thinking)
    messages = sample.messages[:-1] if messages is None else messages
    return frontend.prepare(
        parse_conversation(messages, sample.tools, options), sources=SourceRules()
    )


def whole(frontend, sample):
    """The rendered conversation, answer included."""
    template = TemplateOptions(enable_thinking=sample.thinking, add_generation_prompt=False)
    return frontend.prepare(parse_conversation(sample.messages, sample.tools, template))


@pytest.mark.parametrize("name", TEXT_TASKS)
def test_prompt_and_whole_are_the_engines(name, encoder, frontend):
    for sample in drawn(TEXT_TASKS[name]):
        encoded = encoder.encode(sample)
        prompt = served(frontend, sample).token_ids
        assert tuple(encoded.ids[: len(prompt)]) == prompt
        rendered = whole(frontend, sample)
        assert (*encoded.ids, *frontend.tokenizer.encode("\n")) == rendered.token_ids
        assert encoded.target[len(prompt) :].all()
        if name != "tools_result":
            assert not encoded.target[: len(prompt)].any()


@pytest.mark.parametrize("name", TEXT_TASKS)
def test_the_answer_reads_as_the_sample_says(name, encoder, frontend):
    for sample in drawn(TEXT_TASKS[name]):
        encoded = encoder.encode(sample)
        prompt = served(frontend, sample)
        answer = encoded.ids[len(prompt.token_ids) :].tolist()
        assert answer[-1] == frontend.tokenizer.special["<|im_end|>"]
        parser = frontend.new_output_parser(prompt)
        events = parser.feed(answer) + parser.finish()
        text = {"reasoning": "", "content": ""}
        for event in events:
            if isinstance(event, TextDelta):
                text[event.channel] += event.text
        assert text["reasoning"].strip() == sample.messages[-1].get("reasoning_content", "")
        assert text["content"].rstrip() == sample.messages[-1]["content"]
        made = [event.call for event in events if isinstance(event, ToolCallEnd)]
        wanted = [call["function"] for call in sample.messages[-1].get("tool_calls", ())]
        assert [{"name": c.name, "arguments": dict(c.arguments)} for c in made] == wanted


def test_calls_before_a_result_are_learnt_too(encoder, frontend):
    for sample in drawn(TEXT_TASKS["tools_result"]):
        calls = next(n for n, m in enumerate(sample.messages) if m["role"] == "assistant")
        first = len(served(frontend, sample, sample.messages[:calls]).token_ids)
        encoded = encoder.encode(sample)
        ends = np.flatnonzero(encoded.ids == frontend.tokenizer.special["<|im_end|>"])
        last = int(ends[ends >= first][0])
        assert encoded.target[first : last + 1].all() and not encoded.target[:first].any()
        prompt = len(served(frontend, sample).token_ids)
        assert not encoded.target[last + 1 : prompt].any()


def test_answers_of_earlier_questions_are_not_learnt(encoder):
    messages = (
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
        {"role": "assistant", "content": "four"},
    )
    encoded = encoder.encode(Sample("chat", messages))
    learnt = b"".join(map(encoder.tokenizer.token_bytes, encoded.ids[encoded.target].tolist()))
    assert learnt == b"four<|im_end|>"


def test_a_thought_is_missing_where_thinking_is_on(encoder):
    messages = ({"role": "user", "content": "one"}, {"role": "assistant", "content": "two"})
    with pytest.raises(AssertionError, match="no thought"):
        encoder.encode(Sample("chat", messages, thinking=True))


@pytest.mark.parametrize("name", VISION_TASKS)
def test_pixels_are_the_engines_and_positions_count_them(name, encoder, frontend):
    sample = VISION_TASKS[name](random.Random(name))
    encoded = encoder.encode(sample)
    messages = item(name, 0, sample, encoder)["messages"]
    prompt = served(frontend, sample, messages)
    assert tuple(encoded.ids[: len(prompt.token_ids)]) == prompt.token_ids
    assert encoded.runs == prompt.runs
    assert encoded.media == prompt.media
    for mine, theirs in zip(encoded.media, prompt.media, strict=True):
        assert np.array_equal(mine.patches, theirs.patches)
    expected, _ = mrope_positions(len(encoded.ids), encoded.runs)
    assert encoded.positions.dtype == np.int32
    assert np.array_equal(encoded.positions, expected.numpy())


def test_positions_of_text_are_counted(encoder):
    encoded = encoder.encode(drawn(TEXT_TASKS["copy"], 1)[0])
    assert np.array_equal(encoded.positions, np.tile(np.arange(len(encoded.ids)), (3, 1)))


def test_the_tokenizer_files_are_those_of_the_tasks():
    files = tokenizer.build()
    assert {name: (TOKENIZER_FOLDER / name).read_bytes() for name in files} == files


def test_ids(encoder):
    backend = encoder.tokenizer
    assert backend.addressable == 2040
    first = 2040 - len(ADDED_TOKENS)
    assert backend.added == {text: first + n for n, (text, _) in enumerate(ADDED_TOKENS)}
    assert len(backend.encode("8305")) == 4


def test_tokens_hold_words(encoder):
    rng = random.Random(0)
    text = " ".join(sentence(rng) for _ in range(500))
    assert len(text) / len(encoder.tokenizer.encode(text)) > 4
