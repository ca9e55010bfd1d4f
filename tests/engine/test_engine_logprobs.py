"""Log-probabilities through the engine: which event brings which, and where they end."""

from dataclasses import replace
from pathlib import Path

import pytest
from test_engine_speculation import ask, load

from ninfer.engine import Engine, GenerationOptions
from ninfer.errors import UsageError
from ninfer.request import GenerationResult, LogitBias, TextDelta, TokenLogprob

OPTIONS = GenerationOptions(temperature=1.0, presence_penalty=0.5, seed=3, max_new=40, logprobs=5)
TEXT = "What is a state slot?"


def events_of(
    engine: Engine, options: GenerationOptions
) -> tuple[list[TextDelta], GenerationResult]:
    deltas: list[TextDelta] = []
    result = None
    for event in engine.generate(ask(engine, TEXT), options):
        if isinstance(event, TextDelta):
            deltas.append(event)
        else:
            result = event
    assert result is not None
    engine.check()
    return deltas, result


def streamed(deltas: list[TextDelta]) -> tuple[TokenLogprob, ...]:
    return tuple(entry for delta in deltas for entry in delta.logprobs)


@pytest.fixture(scope="module")
def engine(micro_artifacts: dict[str, Path]) -> Engine:
    return load(micro_artifacts["dense"])


def test_the_pieces_bring_what_the_result_holds(engine: Engine) -> None:
    deltas, result = events_of(engine, OPTIONS)
    assert streamed(deltas) == result.logprobs
    assert [entry.token_id for entry in result.logprobs] == list(result.token_ids)
    assert result.prompt_logprobs == ()
    plain_deltas, plain = events_of(engine, replace(OPTIONS, logprobs=None))
    assert plain.token_ids == result.token_ids
    assert streamed(plain_deltas) == plain.logprobs == ()
    text = "".join(delta.text for delta in deltas)
    assert text == "".join(delta.text for delta in plain_deltas)


def test_f4_drafts_change_no_value(engine: Engine, micro_artifacts: dict[str, Path]) -> None:
    """F4: streamed, five alternatives, MTP on."""
    drafted = load(micro_artifacts["dense"], spec="mtp", draft_tokens=3, adaptive_drafts=False)
    options = replace(OPTIONS, prompt_logprobs=2)
    (_, expected), (deltas, result) = events_of(engine, options), events_of(drafted, options)
    assert streamed(deltas) == result.logprobs == expected.logprobs
    assert result.prompt_logprobs == expected.prompt_logprobs
    assert len(result.prompt_logprobs) == result.usage.prompt_tokens
    assert result.prompt_logprobs[0] is None


def test_they_end_where_the_ids_end(engine: Engine) -> None:
    """Cut by a stop string in the text and by a stop token, whose entry has a piece of its own."""
    deltas, full = events_of(engine, OPTIONS)
    text = "".join(delta.text for delta in deltas)
    cut_deltas, cut = events_of(engine, replace(OPTIONS, stop=(text[9:12],)))
    assert cut.finish_reason == "stop_string"
    count = len(cut.token_ids)
    assert count < 40 and cut.token_ids == full.token_ids[:count]
    assert streamed(cut_deltas) == cut.logprobs == full.logprobs[:count]

    stop = full.token_ids[12]
    count = full.token_ids.index(stop) + 1
    cut_deltas, cut = events_of(engine, replace(OPTIONS, stop_token_id=(stop,)))
    assert cut.finish_reason == "stop_token"
    assert streamed(cut_deltas) == cut.logprobs == full.logprobs[:count]
    assert cut_deltas[-1].logprobs[-1].token_id == stop


def test_rules_of_the_draw_do_not_change_them(engine: Engine) -> None:
    """The first token's distribution is the model's, whatever bias or temperature."""
    bias = (LogitBias(40, 100.0),)
    _, plain = events_of(engine, replace(OPTIONS, max_new=1))
    _, changed = events_of(engine, replace(OPTIONS, max_new=1, temperature=0.3, logit_bias=bias))
    assert changed.token_ids == (40,)
    assert changed.logprobs[0].top == plain.logprobs[0].top
    assert changed.logprobs[0].logprob < -1


def test_no_alternatives_and_none_at_all(engine: Engine) -> None:
    _, result = events_of(engine, replace(OPTIONS, logprobs=0))
    assert len(result.logprobs) == 40 and not any(entry.top for entry in result.logprobs)


def test_a_biased_id_outside_the_vocabulary_is_refused(engine: Engine) -> None:
    with pytest.raises(UsageError, match=r"--logit-bias 504: the model's ids are 0\.\.503"):
        engine.generate(ask(engine, TEXT), replace(OPTIONS, logit_bias=(LogitBias(504, 1.0),)))
