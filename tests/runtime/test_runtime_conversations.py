"""Prefix reuse over whole conversations in the runtime: what is recomputed, and the same tokens."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from test_runtime_batching import BASE, PENALISED, drain
from test_runtime_generation import load

from ninfer.request import SamplingParams
from ninfer.runtime import Runtime, SequenceRequest
from ninfer.runtime.prefix_reuse import PrefixOptions

MakeRuntime = Callable[..., Runtime]
PREFIX = PrefixOptions(state_bytes=64 << 20, salt=b"test")


@pytest.fixture(scope="module", params=["dense", "moe"])
def runtime_of(request: pytest.FixtureRequest, micro_artifacts: dict[str, Path]) -> MakeRuntime:
    weights, config = load(micro_artifacts[request.param])

    def make(*, prefix: PrefixOptions | None = PREFIX, **changes: object) -> Runtime:
        return Runtime(weights, config, replace(BASE, **changes), prefix=prefix)

    return make


def words(draw: random.Random, count: int) -> tuple[int, ...]:
    return tuple(draw.randrange(504) for _ in range(count))


def test_d4_d8_a_tool_conversation_recomputes_one_turn_at_a_time(runtime_of: MakeRuntime) -> None:
    """D4, D8: twenty rounds; each prefills the last answer, the new turn and less than a page."""
    warm, cold = runtime_of(max_context=2048), runtime_of(prefix=None, max_context=2048)
    turns = converse(warm, cold, answers=(5, 20), seed=2)
    figures = "\n".join(str(turn) for turn in turns)
    assert all(turn.unlike == 0 for turn in turns), figures
    assert all(turn.computed <= turn.answer + turn.new + 63 for turn in turns[1:]), figures
    assert all(turn.cached > 0 for turn in turns[1:]), figures
    # The next page was never there, or a page more was not to be had of this prompt.
    assert {turn.reason for turn in turns[1:]} == {"new_tokens", "None"}, figures
    assert turns[0].reason == "no_match"


@dataclass(frozen=True, slots=True)
class Turn:
    """What a turn took: `answer` tokens came before it, `new` ones with it."""

    prompt: int
    answer: int
    new: int
    cached: int
    reason: str
    unlike: int  # ids that differ from those of a cold run
    ids: int

    @property
    def computed(self) -> int:
        return self.prompt - self.cached


def converse(
    warm: Runtime, cold: Runtime, *, answers: tuple[int, int], seed: int, rounds: int = 20
) -> list[Turn]:
    """Rounds of a conversation that goes on with what the cold runtime answers."""
    draw = random.Random(seed)
    prompt, answer, turns = words(draw, 150), 0, []
    for number in range(rounds):
        new = draw.randint(10, 60)
        prompt += words(draw, new)
        sampling = replace(PENALISED, seed=number)
        request = SequenceRequest(prompt, sampling, draw.randint(*answers))
        sequence = warm.submit(request)
        while warm.has_work:
            warm.step()
            warm.check()
        (expected,) = drain(cold, [request])
        found, match = sequence.tokens[sequence.prompt_length :], sequence.match
        unlike = sum(one != other for one, other in zip(found, expected, strict=True))
        turns.append(
            Turn(len(prompt), answer, new, match.length, str(match.miss), unlike, len(found))
        )
        prompt += tuple(expected)
        answer = len(expected)
    return turns


def test_decoded_tokens_are_reused_on_request(
    micro_artifacts: dict[str, Path], record_property: Callable[[str, object], None]
) -> None:
    """Long answers, short questions: what is computed again does not depend on the answer."""
    weights, config = load(micro_artifacts["dense"])
    sizes = replace(BASE, max_context=1024)
    cold = Runtime(weights, config, sizes)
    loose = Runtime(weights, config, sizes, prefix=replace(PREFIX, reuse_decoded=True))
    turns = converse(loose, cold, answers=(70, 130), seed=3, rounds=5)
    figures = "\n".join(str(turn) for turn in turns)
    # The last token of an answer was never processed, so its page may lack one row.
    assert all(turn.computed <= turn.new + 64 for turn in turns[1:]), figures
    record_property("count", sum(turn.unlike for turn in turns))
    record_property("of", sum(turn.ids for turn in turns))
    assert loose.prefixes is not None
    # One border an answer, and those of prefill: borders inside an answer do not pile up.
    assert len(loose.prefixes.cache._tree.borders) <= 2 * len(turns)
    loose.prefixes.cache.clear()
    assert loose.pages.free_count == loose.pages.capacity


def test_d5_conversations_that_share_a_head_do_not_mix(runtime_of: MakeRuntime) -> None:
    """D5: A1, B1, A2 with a shared beginning give what they give cold, and the head is shared."""
    draw = random.Random(4)
    head = words(draw, 200)
    first, second = head + words(draw, 70), head + words(draw, 90)
    again = first + words(draw, 33)
    requests = [SequenceRequest(prompt, PENALISED, 12) for prompt in (first, second, again, head)]
    warm = runtime_of()
    results, reused = [], []
    for request in requests * 2:
        sequence = warm.submit(request)
        while warm.has_work:
            warm.step()
        results.append(sequence.tokens[sequence.prompt_length :])
        reused.append(sequence.match.length)
    assert results == drain(runtime_of(prefix=None), requests) * 2
    # The second conversation finds the shared head only once it is known to be shared.
    assert reused[2] >= 256 and reused[3] == 192
    assert reused[4:] == [256, 256, 256, 192]


def test_d2_eviction_gives_way_to_running_sequences(runtime_of: MakeRuntime) -> None:
    """D2: a cache that filled the pool is dropped piece by piece, never a reason to refuse."""
    draw = random.Random(6)
    requests = [
        SequenceRequest(words(draw, draw.randint(100, 400)), SamplingParams(seed=i), 8)
        for i in range(30)
    ]
    expected = drain(runtime_of(prefix=None, pages=400), requests)
    tight = runtime_of(pages=24, state_slots=3)
    for _ in range(2):
        sequences = [tight.submit(request) for request in requests]
        while tight.has_work:
            tight.step()
            tight.check()
        assert [s.tokens[s.prompt_length :] for s in sequences] == expected
    assert tight.prefixes is not None and tight.prefixes.cache.stats.dropped_pages > 50


def test_cancelled_sequences_leave_a_sound_cache(runtime_of: MakeRuntime) -> None:
    runtime, draw = runtime_of(state_slots=3, pages=40, max_pending=1000), random.Random(8)
    heads = [words(draw, 130) for _ in range(4)]
    live = []
    for index in range(200):
        prompt = draw.choice(heads) + words(draw, draw.randint(1, 100))
        live.append(runtime.submit(SequenceRequest(prompt, SamplingParams(seed=index), 9)))
        for _ in range(draw.randint(0, 3)):
            runtime.step()
        for sequence in draw.sample(live, len(live) // 2):
            runtime.cancel(sequence)
        live = [sequence for sequence in live if sequence.finish is None]
        runtime.check()
    for sequence in live:
        runtime.cancel(sequence)
    assert runtime.prefixes is not None
    runtime.prefixes.cache.clear()
    assert runtime.pages.free_count == runtime.pages.capacity
