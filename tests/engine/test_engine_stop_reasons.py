"""Why a generation ended, with what ended it: stops, limits, the loop guard."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from test_engine_speculation import ask, load
from test_engine_thinking_budget import thinking

from ninfer.engine import Engine, GenerationOptions
from ninfer.request import GenerationEvent, GenerationResult, LogitBias, TextDelta
from ninfer.runtime.loop_guard import TOKENS

OPTIONS = GenerationOptions(temperature=1.0, presence_penalty=0.0, seed=3, max_new=300)


@pytest.fixture(scope="module")
def engine(micro_artifacts: dict[str, Path]) -> Engine:
    return load(micro_artifacts["dense"])


@pytest.fixture(scope="module")
def drafted(micro_artifacts: dict[str, Path]) -> Engine:
    return load(micro_artifacts["dense"], spec="lookup", draft_tokens=7, adaptive_drafts=False)


def read(events: Iterable[GenerationEvent]) -> tuple[dict[str, str], GenerationResult]:
    texts, result = {"reasoning": "", "content": ""}, None
    for event in events:
        if isinstance(event, TextDelta):
            texts[event.channel] += event.text
        else:
            result = event
    assert result is not None
    return texts, result


def always(engine: Engine, text: str) -> GenerationOptions:
    """Options under which the model writes one token for ever."""
    (token,) = engine._model.frontend.tokenizer.encode(text)
    return replace(OPTIONS, logit_bias=(LogitBias(token, 100.0),), loop_guard=True)


def test_a_loop_is_named(engine: Engine, drafted: Engine) -> None:
    """One token for ever; long blocks of drafts are all accepted."""
    options = always(engine, "x")
    texts, result = read(engine.generate(ask(engine, "Go."), options))
    assert (result.finish_reason, result.stop_reason) == ("loop_guard", "loop_guard")
    assert len(result.token_ids) == TOKENS and texts["content"] == "x" * TOKENS
    again = read(drafted.generate(ask(drafted, "Go."), options))
    assert again[0] == texts and again[1].token_ids == result.token_ids
    counters = drafted.speculation_counters()
    assert counters is not None and counters.accepted > TOKENS // 2
    _, free = read(engine.generate(ask(engine, "Go."), replace(options, loop_guard=False)))
    assert (free.finish_reason, free.stop_reason) == ("output_limit", None)


def test_b4_a_closing_tag_without_end(engine: Engine, drafted: Engine) -> None:
    """B4: the first one closes the thought, the guard ends the rest, a cancel is heard."""
    options = always(engine, "</think>")
    for each in (engine, drafted):
        texts, result = read(each.generate(thinking(each), options))
        assert texts == {"reasoning": "", "content": "</think>" * (TOKENS - 1)}
        assert result.finish_reason == "loop_guard"
        assert result.usage.reasoning_tokens == 1
        events = each.generate(thinking(each), replace(options, loop_guard=False))
        next(events)
        events.close()
        assert not each.has_work
        each.check()


def test_b4_a_thought_in_a_loop_is_closed_by_its_budget(engine: Engine) -> None:
    """With both, the budget closes the thought and the guard ends the answer."""
    options = replace(always(engine, "x"), thinking_budget=20)
    texts, result = read(engine.generate(thinking(engine), options))
    assert texts["reasoning"] == "x" * 20 and texts["content"] == "x" * TOKENS
    assert result.finish_reason == "loop_guard"


def test_stops_are_named(engine: Engine) -> None:
    texts, full = read(engine.generate(ask(engine, "Go."), replace(OPTIONS, max_new=40)))
    assert (full.finish_reason, full.stop_reason) == ("output_limit", None)
    token, text = full.token_ids[9], texts["content"][5:8]
    _, by_token = read(
        engine.generate(ask(engine, "Go."), replace(OPTIONS, stop_token_id=(token,)))
    )
    assert (by_token.finish_reason, by_token.stop_reason) == ("stop_token", token)
    _, by_text = read(engine.generate(ask(engine, "Go."), replace(OPTIONS, stop=("zzzz", text))))
    assert (by_text.finish_reason, by_text.stop_reason) == ("stop_string", text)


def test_the_end_of_turn_is_no_stop_of_the_request(engine: Engine) -> None:
    end = engine._model.frontend.stop_ids[0]
    options = replace(OPTIONS, logit_bias=(LogitBias(end, 100.0),))
    _, result = read(engine.generate(ask(engine, "Go."), options))
    assert (result.finish_reason, result.stop_reason) == ("stop_token", None)
    assert result.token_ids == (end,)
