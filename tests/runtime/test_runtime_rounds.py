"""Device-side rounds give the tokens of a plain run, alone, in company, drafted and ahead."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
import torch
from round_scene import (
    GREEDY,
    MODES,
    PENALISED,
    foreseeing,
    requests,
    rounds_of,
    tokens_of,
)
from safety_scene import KINDS, Scene, request, with_pictures

from ninfer.errors import GenerationError
from ninfer.request import FinishReason, LogitBias, SamplingParams
from ninfer.runtime import RoundOptions, Runtime
from ninfer.runtime.rounds import PlainReason
from ninfer.runtime.rounds.decode_rounds import _DRAFTS
from ninfer.runtime.speculative import Speculation
from ninfer.runtime.speculative.lookup import Match

AHEAD = (0, 1)


@pytest.fixture(scope="module")
def scene() -> Callable[[str | None], Scene]:
    made: dict[str | None, Scene] = {}

    def of(kind: str | None = None) -> Scene:
        if kind not in made:
            made[kind] = Scene(kind)
        return made[kind]

    return of


@pytest.mark.parametrize("ahead", AHEAD)
@pytest.mark.parametrize("kind", KINDS)
def test_rounds_change_no_token(scene: Callable[..., Scene], kind: str | None, ahead: int) -> None:
    asked = requests(11, 6)
    expected = tokens_of(scene(kind).runtime(), asked)
    runtime = scene(kind).runtime(rounds=RoundOptions(ahead))
    assert tokens_of(runtime, asked) == expected
    rounds = rounds_of(runtime)
    assert rounds.played > 20
    assert set(rounds.reasons) <= {PlainReason.PREFILL, PlainReason.UNSEEN, PlainReason.NOBODY}


@pytest.mark.parametrize("ahead", AHEAD)
@pytest.mark.parametrize("rate", [0.0, 0.6, 0.9, 1.0])
def test_right_and_wrong_drafts_change_no_token(
    scene: Callable[..., Scene], rate: float, ahead: int
) -> None:
    asked = requests(5, 7)
    runtime, oracle = foreseeing(scene(), asked, rate, ahead=ahead)
    assert tokens_of(runtime, asked) == [oracle.truth[one.prompt] for one in asked]
    wanted = {0.0: {1}, 0.6: {1, 2, 3, 4}, 0.9: {1, 2, 3, 4}}.get(rate, {1, 2, 3, 4})
    assert set(oracle.counts) <= wanted and max(oracle.counts) == max(wanted)
    speculation = runtime.speculation
    assert speculation is not None
    accepted = speculation.counters.accepted
    # What stood behind an end is not counted.
    assert accepted <= sum(oracle.counts) - len(oracle.counts)
    assert (accepted > 0) == (rate > 0)


@pytest.mark.parametrize("sampling", MODES)
def test_drafts_pay_in_rounds(scene: Callable[..., Scene], sampling: SamplingParams) -> None:
    """All drafts right: a quarter of the rounds."""
    asked = [request([3, 1, 4, 1, 5], sampling=replace(sampling, seed=2), max_tokens=41)]
    runtime, _ = foreseeing(scene(), asked, 1.0, ahead=0)
    tokens_of(runtime, asked)
    assert rounds_of(runtime).played == 10
    runtime, _ = foreseeing(scene(), asked, 0.0, ahead=0)
    tokens_of(runtime, asked)
    assert rounds_of(runtime).played == 40


def test_lookup_drafts_for_rounds(scene: Callable[..., Scene]) -> None:
    """A text that repeats itself is drafted by the host; what is given is verified in a round."""
    asked = [
        request([7, 8, 9, 10] * 8 + [index], sampling=GREEDY, max_tokens=120) for index in range(2)
    ]
    scene = scene("lookup")
    expected = tokens_of(scene.runtime(), asked)
    for ahead in AHEAD:
        runtime = scene.runtime(rounds=RoundOptions(ahead))
        # A random model repeats itself rarely; what it has said is shown to it once more.
        assert runtime.speculation is not None
        lookup = runtime.speculation.proposer
        truth = dict(zip((one.prompt for one in asked), expected, strict=True))

        def followers(sequences, counts, truth=truth):  # a stand-in
            found = []
            for s, count in zip(sequences, counts, strict=True):
                answer = truth[tuple(s.tokens[: s.prompt_length])]
                found.append(list(answer[s.generated :][:count]))
            return found

        lookup.propose = followers
        rounds = rounds_of(runtime)
        assert rounds._sources is not None
        looked = rounds._sources.lookup
        assert looked is lookup
        lookup.match = lambda s: Match(9, 3)
        assert tokens_of(runtime, asked) == expected
        assert runtime.speculation.counters.accepted > 60
        assert not rounds.reasons[PlainReason.PROPOSER]


def test_a_stop_in_a_round_ends_the_sequence_there(scene: Callable[..., Scene]) -> None:
    """Surplus tokens of rounds ahead are dropped, and the company goes on unharmed."""
    asked = [replace(one, max_tokens=25) for one in requests(3, 3)]
    plain = tokens_of(scene().runtime(), asked)
    # An id that stands nowhere before its place, so that the stop is known.
    place = next(i for i in range(6, 20) if plain[1][i] not in plain[1][:i])
    stopped = [asked[0], replace(asked[1], stop_ids=frozenset({plain[1][place]})), asked[2]]
    for ahead in AHEAD:
        for rate in (0.0, 1.0):
            runtime, _ = foreseeing(scene(), asked, rate, ahead=ahead)
            found = tokens_of(runtime, stopped)
            assert found == [plain[0], plain[1][: place + 1], plain[2]]


def test_cancellation_and_preemption_under_way(scene: Callable[..., Scene]) -> None:
    asked = [replace(one, max_tokens=40) for one in requests(8, 3)]
    plain = tokens_of(scene().runtime(), asked)
    runtime, _ = foreseeing(scene(), asked, 0.7, ahead=1)
    sequences = [runtime.submit(one) for one in asked]
    found = dict.fromkeys(sequences, ())
    rounds = rounds_of(runtime)
    for step in range(400):
        if step == 8:
            assert rounds.under_way
            runtime.cancel(sequences[1])
        if step == 10:
            assert rounds.under_way
            runtime._scheduler.preempt(sequences[2])
        for progress in runtime.step():
            found[progress.sequence] += progress.tokens
        runtime.check()
        if not runtime.has_work:
            break
    assert sequences[1].finish is FinishReason.CANCELLED and len(found[sequences[1]]) < 40
    assert found[sequences[0]] == plain[0]
    assert found[sequences[2]] == plain[2] and sequences[2].preemptions == 1


@pytest.mark.parametrize("kind", [None, "mtp", "dflash2"])
def test_few_pages(scene: Callable[..., Scene], kind: str | None) -> None:
    """Rounds take no page that another needs: then steps are plain and sequences give way."""
    asked = [replace(one, max_tokens=60) for one in requests(21, 5)]
    expected = tokens_of(scene(kind).runtime(), asked)
    runtime = scene(kind).runtime(rounds=RoundOptions(1), pages=5, max_context=320)
    assert tokens_of(runtime, asked) == expected
    assert rounds_of(runtime).reasons[PlainReason.PAGES]


def test_up_to_the_last_place_of_the_context(scene: Callable[..., Scene]) -> None:
    """The end of the context is a page's end: no round reaches beyond it."""
    tokens = [5] * 100
    asked = [request(tokens, sampling=PENALISED, max_tokens=29)]
    sizes = {"max_context": 128, "pages": 2, "state_slots": 1}
    expected = tokens_of(scene().runtime(**sizes), asked)
    for ahead, rate in product(AHEAD, (0.0, 0.5, 1.0)):
        runtime, _ = foreseeing(scene(), asked, rate, ahead=ahead, **sizes)
        assert tokens_of(runtime, asked) == expected
        assert rounds_of(runtime).played >= 7


def test_sequences_with_pictures(scene: Callable[..., Scene]) -> None:
    """Positions behind media are shifted, in the model and in the drafter's chain."""
    one = scene("mtp")
    asked = [with_pictures(one, [9, 8, 7, seed], [seed], max_tokens=12) for seed in range(2)]
    expected = tokens_of(one.runtime(), asked)
    runtime = one.runtime(rounds=RoundOptions(1))
    assert tokens_of(runtime, asked) == expected
    assert rounds_of(runtime).played > 5


class Any2:
    """A constraint that allows everything, and counts."""

    is_finished = False

    def __init__(self, ids: int) -> None:
        self._words = -(-ids // 32)

    def allowed(self) -> bytes:
        return b"\xff" * (4 * self._words)

    def advance(self, token: int) -> bool:
        return True


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"constraint": True}, PlainReason.CONSTRAINT),
        ({"logprobs": 2}, PlainReason.LOGPROBS),
        ({"sampling": replace(GREEDY, logit_bias=(LogitBias(7, 2.0),))}, PlainReason.BIAS),
        ({"forcer": True}, PlainReason.FORCER),
    ],
)
def test_what_a_round_cannot_do_runs_op_by_op(
    scene: Callable[..., Scene],
    scripted: Callable[..., object],
    fields: dict[str, object],
    reason: PlainReason,
) -> None:
    def asked() -> list[object]:
        made = dict(fields)
        if "constraint" in made:
            made["constraint"] = Any2(scene().model.config.text.vocab_rows)
        if "forcer" in made:
            made["forcer"] = scripted([4, 5, 6])
        return [request([1, 2, 3], max_tokens=9, **made), request([4, 5], max_tokens=4)]

    expected = tokens_of(scene().runtime(), asked())
    runtime = scene().runtime(rounds=RoundOptions(1))
    assert tokens_of(runtime, asked()) == expected
    rounds = rounds_of(runtime)
    assert rounds.reasons[reason] >= 3 and not rounds.played


def test_rounds_resume_when_the_odd_one_is_gone(scene: Callable[..., Scene]) -> None:
    asked = [request([1, 2, 3], max_tokens=4, logprobs=1), request([4, 5], max_tokens=20)]
    expected = tokens_of(scene("mtp").runtime(), asked)
    runtime = scene("mtp").runtime(rounds=RoundOptions(1))
    assert tokens_of(runtime, asked) == expected
    assert rounds_of(runtime).played > 5


def test_logits_that_are_not_finite_end_their_own_sequence(scene: Callable[..., Scene]) -> None:
    asked = [replace(one, max_tokens=12) for one in requests(2, 3)]
    plain = tokens_of(scene().runtime(), asked)
    runtime = scene().runtime(rounds=RoundOptions(1))
    sequences = [runtime.submit(one) for one in asked]
    bad = sequences[1]
    original = runtime._runner.run

    def poisoned(batch, taps=()):  # a stand-in
        passed = original(batch, taps)
        lanes = (batch.rows.state_slots == bad.state_slot).nonzero().flatten()
        if bad.generated > 5 and len(batch.logit_rows) == len(batch.rows.state_slots):
            passed.logits[lanes] = float("nan")
        return passed

    runtime._runner.run = poisoned
    found, errors = dict.fromkeys(sequences, ()), {}
    while runtime.has_work:
        for progress in runtime.step():
            found[progress.sequence] += progress.tokens
            if progress.error:
                errors[progress.sequence] = progress.error
    assert list(errors) == [bad] and isinstance(errors[bad], GenerationError)
    assert "non-finite" in str(errors[bad])
    assert found[bad] == plain[1][: len(found[bad])] and 5 < len(found[bad]) < 12
    assert [found[sequences[0]], found[sequences[2]]] == [plain[0], plain[2]]


def test_no_memory_for_a_round_means_no_rounds(scene: Callable[..., Scene]) -> None:
    """Everyone does its work once more, to the same tokens."""
    asked = [replace(one, max_tokens=20) for one in requests(4, 3)]
    plain = tokens_of(scene("mtp").runtime(), asked)
    runtime = scene("mtp").runtime(rounds=RoundOptions(1))
    player = rounds_of(runtime).player
    original, left = player.start, [6]

    def failing(shape):  # a stand-in
        left[0] -= 1
        if not left[0]:
            raise torch.OutOfMemoryError("no memory")
        return original(shape)

    player.start = failing
    assert tokens_of(runtime, asked) == plain
    assert runtime.rounds is None


def test_a_proposer_that_only_the_host_knows_has_no_rounds(scene: Callable[..., Scene]) -> None:
    class Fixed:
        taps, kv_layers = (), {}

        def observe(self, *rest: object) -> None: ...

        def propose(self, sequences: list[object], counts: list[int]) -> list[list[int]]:
            return [[1] * count for count in counts]

        def source(self, sequence: object) -> str:
            return "fixed"

        def release(self, sequence: object) -> None: ...

    asked = requests(6, 2)
    plain = tokens_of(scene().runtime(), asked)
    sizes = {"speculation": Speculation(Fixed()), "window": 3, "rounds": RoundOptions(0)}
    runtime: Runtime = scene().runtime(**sizes)
    assert tokens_of(runtime, asked) == plain
    assert rounds_of(runtime).reasons[PlainReason.PROPOSER] and not rounds_of(runtime).played


def test_every_tier_is_a_window_that_memory_was_planned_for(scene: Callable[..., Scene]) -> None:
    rounds = rounds_of(scene("mtp").runtime(rounds=RoundOptions(0)))
    assert [rounds._tiers(count) for count in (1, 3, 30, 64)] == [
        [0, 1, 3],
        [0, 1, 3],
        [0, 1],
        [0],
    ]
    assert all(drafts >= 0 for drafts in _DRAFTS)


def drafted(runtime: Runtime, asked: list[object]) -> dict[tuple[object, ...], tuple[int, ...]]:
    """Drafts by prompt and frontier, of a whole run."""
    found = {}
    speculation = runtime.speculation
    assert speculation is not None
    judge = speculation._judge

    def spy(row, tried):  # a stand-in
        if tried.drafts:
            prompt = tuple(row.sequence.tokens[: row.sequence.prompt_length])
            found[prompt, tried.frontier] = tried.drafts
        judge(row, tried)

    speculation._judge = spy
    tokens_of(runtime, asked)
    return found


@pytest.mark.parametrize("every", [1, 3, 20])
@pytest.mark.parametrize("kind", ["mtp", "dflash", "dflash2"])
def test_rounds_draft_what_the_host_would(
    scene: Callable[..., Scene], kind: str, every: int
) -> None:
    """Also behind rounds without drafts, whose rows the MTP layer takes in later, many at once."""
    one = scene(kind)
    plain = one.runtime()
    assert plain.speculation is not None
    asked = [replace(r, max_tokens=44) for r in requests(17, 3)]
    plain.speculation._window = None
    expected = drafted(plain, asked)
    runtime = one.runtime(rounds=RoundOptions(1))
    speculation, turns = runtime.speculation, []
    assert speculation is not None
    speculation._window = None
    honest = speculation.plan_round

    def sometimes(*args):  # a stand-in
        turns.append(1)
        return honest(*args) if len(turns) % every == 0 else 0

    speculation.plan_round = sometimes
    found = drafted(runtime, asked)
    assert len(found) >= 60 // every and rounds_of(runtime).played > 40
    # The host stops at the end of the answer, a round drafts beyond it.
    same = [
        drafts[: len(expected[key])] == expected[key][: len(drafts)]
        for key, drafts in found.items()
        if key in expected
    ]
    assert len(same) >= 40 // every and all(same)


def test_the_layer_that_drafts_rests_while_nobody_drafts(scene: Callable[..., Scene]) -> None:
    one = scene("mtp")
    runtime = one.runtime(rounds=RoundOptions(0))
    speculation = runtime.speculation
    assert speculation is not None
    speculation.plan_round = lambda *args: 0
    (drafter,) = [speculation.proposer.drafter]
    calls, forward = [], drafter.forward

    def counted(batch, hidden):  # a stand-in
        calls.append(batch.tokens.shape[0])
        return forward(batch, hidden)

    drafter.forward = counted
    asked = [request([1, 2, 3], max_tokens=60)]
    assert tokens_of(runtime, asked) == tokens_of(one.runtime(), asked)
    # The prompt, then 59 rounds, of which every sixteen cost one call.
    assert calls == [3, 16, 16, 16]
