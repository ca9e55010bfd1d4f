"""Tool calls through the engine: noise, forced into the form of calls, comes out as calls."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_engine_speculation import load

import ninfer.engine.engine as engine_module
from ninfer.engine import AsyncEngine, Engine, GenerationOptions
from ninfer.engine.session import Session
from ninfer.frontend import parse_conversation
from ninfer.request import (
    FinishReason,
    GenerationEvent,
    GenerationResult,
    PreparedPrompt,
    SamplingParams,
    TemplateOptions,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallSpec,
    ToolCallStart,
    ToolRule,
)
from ninfer.runtime import Progress, Sequence

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "count"],
}
TOOL = {"type": "function", "function": {"name": "order", "parameters": SCHEMA}}
SAMPLED = GenerationOptions(temperature=1.0, presence_penalty=0.0, max_new=300, thinking=False)


@pytest.fixture(scope="module")
def engine(micro_artifacts: dict[str, Path]) -> Iterator[Engine]:
    """An engine whose answers are exactly one strict call."""
    engine = load(micro_artifacts["dense"])
    spec = ToolCallSpec((ToolRule("order", SCHEMA, strict=True),), required=True, parallel=False)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "constraint_spec", lambda options: spec)
        yield engine


@pytest.fixture(scope="module")
def whole(engine: Engine) -> GenerationResult:
    """The result of a call that nothing disturbed."""
    return check(engine.generate(ask(engine), SAMPLED))


def ask(engine: Engine) -> PreparedPrompt:
    """A prompt that has the tools but does not spell them out, which would take most of the time.

    That prepared prompts carry their tools is tested in `tests/frontend` and `tests/cli`.
    """
    messages = [{"role": "user", "content": "Order."}]
    options = TemplateOptions(enable_thinking=False)
    return replace(engine.prepare(parse_conversation(messages, None, options)), tools=(TOOL,))


def check(events) -> GenerationResult:
    *before, result = events
    assert isinstance(result, GenerationResult)
    assert not [event for event in before if isinstance(event, TextDelta)]
    (start,) = [event for event in before if isinstance(event, ToolCallStart)]
    (end,) = [event for event in before if isinstance(event, ToolCallEnd)]
    pieces = [event.fragment for event in before if isinstance(event, ToolCallArguments)]
    arguments = json.loads("".join(pieces))
    assert len(pieces) > 3
    assert result.tool_calls == (end.call,)
    assert (end.call.name, end.call.arguments, end.call.id) == ("order", arguments, start.id)
    assert type(arguments["count"]) is int
    assert isinstance(arguments["name"], str)
    assert result.finish_reason is FinishReason.STOP_TOKEN
    return result


def test_a_call_comes_out_of_the_engine(engine: Engine, whole: GenerationResult) -> None:
    assert whole.usage.completion_tokens == len(whole.token_ids)
    again = check(engine.generate(ask(engine), SAMPLED))
    assert again.token_ids == whole.token_ids
    assert again.tool_calls[0].arguments == whole.tool_calls[0].arguments
    assert again.tool_calls[0].id != whole.tool_calls[0].id
    engine.check()


def test_a_cut_call_is_not_returned(engine: Engine, whole: GenerationResult) -> None:
    for length in (1, 10, len(whole.token_ids) - 30):
        events = list(engine.generate(ask(engine), replace(SAMPLED, max_new=length)))
        assert events[-1].finish_reason is FinishReason.OUTPUT_LIMIT
        assert events[-1].tool_calls == ()
        assert not any(isinstance(event, ToolCallEnd) for event in events)
        assert events[-1].token_ids == whole.token_ids[:length]


def test_without_tools_or_raw_the_same_ids_are_text(
    engine: Engine, whole: GenerationResult
) -> None:
    for prompt, options in (
        (replace(ask(engine), tools=()), SAMPLED),
        (ask(engine), replace(SAMPLED, raw_output=True)),
    ):
        *texts, result = engine.generate(prompt, options)
        assert (result.token_ids, result.tool_calls) == (whole.token_ids, ())
        shown = "".join(event.text for event in texts)
        assert shown.startswith("<tool_call>\n<function=order>\n<parameter=")


def test_log_probabilities_of_a_call_come_with_the_next_text(
    engine: Engine, whole: GenerationResult
) -> None:
    """Here that is an empty piece at the end; the events of the call are those without them."""
    *before, result = engine.generate(ask(engine), replace(SAMPLED, logprobs=1))
    texts = [event for event in before if isinstance(event, TextDelta)]
    assert [event.text for event in texts] == [""] and before[-1] is texts[0]
    assert texts[0].logprobs == result.logprobs
    assert [entry.token_id for entry in result.logprobs] == list(whole.token_ids)
    check([*before[:-1], result])


def test_stop_strings_do_not_end_a_call(engine: Engine, whole: GenerationResult) -> None:
    stopped = replace(SAMPLED, stop=("parameter", "count", "\n"))
    assert check(engine.generate(ask(engine), stopped)).token_ids == whole.token_ids


def test_asyncio_callers_get_the_same_calls(engine: Engine, whole: GenerationResult) -> None:
    async def collect() -> list[GenerationEvent]:
        shared = AsyncEngine(engine)
        try:
            return [event async for event in shared.generate(ask(engine), SAMPLED)]
        finally:
            await shared.close()

    result = check(asyncio.run(collect()))
    assert result.token_ids == whole.token_ids
    assert result.tool_calls[0].arguments == whole.tool_calls[0].arguments


@pytest.mark.parametrize(
    ("finish", "calls"),
    [
        (FinishReason.STOP_TOKEN, 2),
        (FinishReason.OUTPUT_LIMIT, 1),
        (FinishReason.CANCELLED, 1),
    ],
)
def test_closers_may_be_missing_only_if_the_model_ended(
    engine: Engine, finish: FinishReason, calls: int
) -> None:
    frontend = engine._model.frontend
    one = "<tool_call>\n<function=order>\n<parameter=count>\n3\n</parameter>\n"
    ids = frontend.tokenizer.encode(one + "</function>\n</tool_call>\n" + one)
    session = Session(frontend.new_output_parser(ask(engine)), 5, FinishReason.OUTPUT_LIMIT)
    sequence = Sequence([], 0, SamplingParams(), [], 0)
    *_, result = session.feed(Progress(sequence, tuple(ids), finish))
    assert [call.arguments for call in result.tool_calls] == [{"count": 3}] * calls
    assert result.finish_reason is finish
