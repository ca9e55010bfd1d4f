"""The thinking budget through the engine: closed in time, the same tokens with drafts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from test_engine_speculation import load

from ninfer.engine import Engine, GenerationOptions
from ninfer.frontend.thinking_budget import CLOSING
from ninfer.request import (
    ContentPart,
    Conversation,
    GenerationResult,
    LogitBias,
    Message,
    PreparedPrompt,
)

SAMPLED = GenerationOptions(temperature=1.0, presence_penalty=0.0, max_new=60, thinking_budget=13)


def thinking(engine: Engine, text: str = "Why?") -> PreparedPrompt:
    prompt = engine.prepare(Conversation((Message("user", (ContentPart("text", text),)),)))
    assert prompt.starts_in_reasoning
    return prompt


def run(
    engine: Engine, options: GenerationOptions, text: str = "Why?"
) -> tuple[str, str, GenerationResult]:
    texts = {"reasoning": "", "content": ""}
    result = None
    for event in engine.generate(thinking(engine, text), options):
        if isinstance(event, GenerationResult):
            result = event
        else:
            texts[event.channel] += event.text
    assert result is not None
    engine.check()
    return texts["reasoning"], texts["content"], result


@pytest.fixture(scope="module")
def engines(micro_artifacts: dict[str, Path]) -> dict[str, Engine]:
    path = micro_artifacts["dense"]
    return {
        "plain": load(path),
        "mtp": load(path, spec="mtp", draft_tokens=4, adaptive_drafts=False),
        "lookup": load(path, spec="lookup", draft_tokens=7, adaptive_drafts=False),
    }


def closing_of(engine: Engine) -> tuple[int, ...]:
    return tuple(engine._model.frontend.tokenizer.encode(CLOSING))


def test_a_thought_is_closed_and_an_answer_follows(engines: dict[str, Engine]) -> None:
    engine = engines["plain"]
    closing = closing_of(engine)
    reasoning, content, result = run(engine, SAMPLED)
    assert result.token_ids[13 : 13 + len(closing)] == closing
    assert reasoning and content
    assert result.usage.completion_tokens == 60
    close = closing.index(engine._model.frontend.tokenizer.added["</think>"])
    assert result.usage.reasoning_tokens == 13 + close + 1
    free = run(engine, replace(SAMPLED, thinking_budget=None))[2]
    assert free.token_ids[:13] == result.token_ids[:13]


@pytest.mark.parametrize("spec", ["mtp", "lookup"])
@pytest.mark.parametrize("budget", [0, 4, 13])
@pytest.mark.parametrize("change", [{}, {"presence_penalty": 1.5}, {"greedy": True}])
def test_drafts_change_nothing(
    engines: dict[str, Engine], spec: str, budget: int, change: dict[str, object]
) -> None:
    options = replace(SAMPLED, thinking_budget=budget, seed=budget, logprobs=2, **change)
    if options.greedy:
        options = replace(options, temperature=None)
    expected = run(engines["plain"], options)
    found = run(engines[spec], options)
    assert found[:2] == expected[:2]
    assert found[2].token_ids == expected[2].token_ids
    assert found[2].logprobs == expected[2].logprobs
    assert found[2].usage == expected[2].usage
    closing = closing_of(engines[spec])
    assert found[2].token_ids[budget : budget + len(closing)] == closing


def test_an_answer_with_a_schema_follows_a_closed_thought(
    engines: dict[str, Engine], tmp_path: Path
) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"enum": ["red", "blue", 17]}))
    options = replace(SAMPLED, json_schema=path)
    for seed in range(3):
        results = [run(engine, replace(options, seed=seed)) for engine in engines.values()]
        assert json.loads(results[0][1]) in ("red", "blue", 17)
        assert results[0][2].finish_reason == "stop_token"
        assert len({result.token_ids for _, _, result in results}) == 1


def test_the_output_limit_may_come_first(engines: dict[str, Engine]) -> None:
    """Inside the thought, and inside the closing sequence."""
    for limit in (10, 14):
        reasoning, content, result = run(engines["plain"], replace(SAMPLED, max_new=limit))
        assert reasoning and not content
        assert result.finish_reason == "output_limit"
        assert len(result.token_ids) == limit == result.usage.reasoning_tokens


def test_a_thought_without_end_is_ended(engines: dict[str, Engine]) -> None:
    """B5: a model that repeats itself in its thought for ever still comes to an answer."""
    engine = engines["plain"]
    (x,) = engine._model.frontend.tokenizer.encode("x")
    looping = replace(SAMPLED, logit_bias=(LogitBias(x, 100.0),))
    reasoning, content, _ = run(engine, looping)
    assert reasoning == "x" * 13
    assert content == "x" * (60 - 13 - len(closing_of(engine)))


def test_no_thought_no_closing(engines: dict[str, Engine]) -> None:
    engine = engines["plain"]
    message = Message("user", (ContentPart("text", "Why?"),))
    template = replace(Conversation((message,)).template, enable_thinking=False)
    prompt = engine.prepare(Conversation((message,), template=template))
    *_, bound = engine.generate(prompt, replace(SAMPLED, thinking_budget=3))
    *_, free = engine.generate(prompt, replace(SAMPLED, thinking_budget=None))
    assert isinstance(bound, GenerationResult) and isinstance(free, GenerationResult)
    assert bound.token_ids == free.token_ids
