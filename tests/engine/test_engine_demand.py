"""Reports of users of other engines, tried through the whole engine, by the ids of our list."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from test_engine_speculation import ask, load
from test_engine_stop_reasons import read
from test_engine_thinking_budget import thinking

from ninfer.engine import Engine, GenerationOptions
from ninfer.request import GenerationResult, PreparedPrompt, TextDelta, TokenForcer

OPTIONS = GenerationOptions(temperature=1.0, presence_penalty=0.0, seed=3, max_new=40)
Scripted = Callable[[Sequence[int]], TokenForcer]


@pytest.fixture(scope="module")
def plain(micro_artifacts: dict[str, Path]) -> Engine:
    return load(micro_artifacts["dense"])


@pytest.fixture(scope="module")
def mtp(micro_artifacts: dict[str, Path]) -> Engine:
    return load(micro_artifacts["dense"], spec="mtp", draft_tokens=3, adaptive_drafts=False)


@pytest.fixture(scope="module")
def lookup(micro_artifacts: dict[str, Path]) -> Engine:
    return load(micro_artifacts["dense"], spec="lookup", draft_tokens=7, adaptive_drafts=False)


def byte_ids(engine: Engine, data: bytes) -> list[int]:
    """One id for each byte, so that characters are split over tokens."""
    tokenizer = engine._model.frontend.tokenizer
    known = {tokenizer.token_bytes(i): i for i in reversed(range(tokenizer.addressable))}
    return [known[bytes([byte])] for byte in data]


def write(
    engine: Engine,
    scripted: Scripted,
    monkeypatch: pytest.MonkeyPatch,
    ids: Sequence[int],
    options: GenerationOptions,
) -> tuple[dict[str, str], GenerationResult]:
    """The engine's answer when the model writes `ids`, which its prompt holds too, for lookup."""
    before = ask(engine, "Write: ")
    prompt = PreparedPrompt(before.text, (*ids, *before.token_ids), before.starts_in_reasoning)
    monkeypatch.setattr(engine, "_forcer", lambda prompt, options: scripted(ids))
    result = read(engine.generate(prompt, replace(options, max_new=len(ids))))
    monkeypatch.undo()
    engine.check()
    return result


@pytest.mark.parametrize(
    "change", [{"presence_penalty": 2.0}, {"frequency_penalty": 2.0}, {"repetition_penalty": 5.0}]
)
def test_e2_a_penalty_has_its_effect_with_drafts(
    plain: Engine, mtp: Engine, change: dict[str, float]
) -> None:
    """E2: it differs from no penalty, and equals the run without speculation."""
    for engine in (plain, mtp):
        prompt = ask(engine, "one one one one")
        _, free = read(engine.generate(prompt, OPTIONS))
        _, bound = read(engine.generate(prompt, replace(OPTIONS, **change)))
        assert bound.token_ids != free.token_ids
        if engine is plain:
            expected = (free.token_ids, bound.token_ids)
    assert (free.token_ids, bound.token_ids) == expected


def test_f2_the_first_stop_in_the_text_wins_in_a_block(
    lookup: Engine, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F2: several stop strings are complete within one accepted block."""
    ids = byte_ids(lookup, b"0123456789 This, a word")
    counters = lookup.speculation_counters()
    assert counters is not None
    before = counters.accepted
    texts, result = write(
        lookup, scripted, monkeypatch, ids, replace(OPTIONS, stop=("a", "is", ","))
    )
    assert texts["content"] == "0123456789 Th"
    assert (result.finish_reason, result.stop_reason) == ("stop_string", "is")
    assert result.token_ids == tuple(ids[:15])
    assert result.usage.completion_tokens == 15
    assert counters.accepted > before


def test_f4_one_entry_for_each_token_of_thought_and_answer(plain: Engine, mtp: Engine) -> None:
    """F4: five alternatives, streamed, a thought before the answer, drafts on."""
    options = replace(OPTIONS, logprobs=5, thinking_budget=9)
    found = []
    for engine in (plain, mtp):
        deltas, result = [], None
        for event in engine.generate(thinking(engine), options):
            if isinstance(event, TextDelta):
                deltas.append(event)
            else:
                result = event
        assert result is not None
        streamed = [entry for delta in deltas for entry in delta.logprobs]
        assert [entry.token_id for entry in streamed] == list(result.token_ids)
        assert all(entry.logprob < 0 and len(entry.top) == 5 for entry in streamed)
        assert {delta.channel for delta in deltas} == {"reasoning", "content"}
        found.append(streamed)
    assert found[0] == found[1]


def test_f7_usage_counts_tokens_not_pieces(
    lookup: Engine, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F7: a character of three tokens makes one piece; all three are counted."""
    ids = byte_ids(lookup, "数据数据数据".encode())
    pieces = []
    before = ask(lookup, "Write: ")
    prompt = PreparedPrompt(before.text, (*ids, *before.token_ids), before.starts_in_reasoning)
    monkeypatch.setattr(lookup, "_forcer", lambda prompt, options: scripted(ids))
    for event in lookup.generate(prompt, replace(OPTIONS, max_new=len(ids))):
        if isinstance(event, TextDelta):
            pieces.append(event.text)
        else:
            assert event.usage.completion_tokens == len(ids) == 18
            assert event.usage.prompt_tokens == len(prompt.token_ids)
    assert "".join(pieces) == "数据数据数据" and len(pieces) == 6


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"abc\xffdef", "abc\ufffddef"),
        (b"abc\xe4def", "abc\ufffddef"),
        (b"abcdef\xf0\x9f\x99", "abcdef\ufffd"),
    ],
)
def test_g1_a_malformed_byte_ends_nothing(
    lookup: Engine,
    scripted: Scripted,
    monkeypatch: pytest.MonkeyPatch,
    data: bytes,
    text: str,
) -> None:
    """G1: what follows is kept, the request ends as usual, and so does the next one."""
    expected = read(lookup.generate(ask(lookup, "Hi"), OPTIONS))
    texts, result = write(lookup, scripted, monkeypatch, byte_ids(lookup, data), OPTIONS)
    assert texts["content"] == text
    assert result.finish_reason == "output_limit"
    after = read(lookup.generate(ask(lookup, "Hi"), OPTIONS))
    assert (after[0], after[1].token_ids) == (expected[0], expected[1].token_ids)


def test_g2_split_characters_arrive_whole_in_blocks(
    lookup: Engine, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G2: tokens are parts of characters, and come several at a time."""
    text = "emoji 🙂🙂 and 数据, é"
    texts, result = write(lookup, scripted, monkeypatch, byte_ids(lookup, text.encode()), OPTIONS)
    assert texts["content"] == text
    assert result.usage.completion_tokens == len(text.encode())
