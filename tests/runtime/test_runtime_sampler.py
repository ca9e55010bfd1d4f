"""The next token: which random number it uses, and what penalties count."""

from dataclasses import replace

import pytest
import torch

from ninfer.errors import GenerationError, UsageError
from ninfer.ops import Purpose, uniform
from ninfer.request import LogitBias, SamplingParams
from ninfer.runtime.batch import Piece
from ninfer.runtime.logit_rules import penalised
from ninfer.runtime.requests import check_sampling
from ninfer.runtime.sampler import draw_pieces, draw_uniform, next_token
from ninfer.runtime.sequence import Sequence


def sequence(prompt: list[int], generated: list[int], **params: object) -> Sequence:
    made = Sequence(list(prompt), len(prompt), SamplingParams(**params), [], 0)
    for token in generated:
        made.append(token)
    return made


def test_the_first_token_is_drawn_at_the_prompt_length() -> None:
    assert draw_uniform(sequence([7] * 30, [], seed=5)) == uniform(5, 30, Purpose.PREFILL)


def test_later_tokens_are_drawn_at_the_cache_position_of_the_one_before() -> None:
    assert draw_uniform(sequence([7] * 30, [1], seed=5)) == uniform(5, 30, Purpose.DECODE)
    assert draw_uniform(sequence([7] * 30, [1, 2], seed=5)) == uniform(5, 31, Purpose.DECODE)


def test_known_random_numbers() -> None:
    assert round(draw_uniform(sequence([7] * 30, [])) * 2**24) == 11_054_032
    assert round(draw_uniform(sequence([7] * 30, [1])) * 2**24) == 10_754_464
    assert round(draw_uniform(sequence([7] * 31, [1], seed=42)) * 2**24) == 6_536_864


def test_e4_penalties_count_generated_tokens_only() -> None:
    """E4: a token that stands in the prompt alone is not penalised."""
    logits = torch.tensor([[0.0, 5.0, 4.0, -50.0]])
    params = {"temperature": 1e-3, "presence_penalty": 2.0}
    assert next_token(sequence([1, 1, 1], [], **params), logits, 4) == 1
    assert next_token(sequence([1, 1, 1], [1], **params), logits, 4) == 2


def test_frequency_counts_each_occurrence() -> None:
    logits = torch.tensor([[0.0, 5.0, 4.0, -50.0]])
    params = {"temperature": 1e-3, "frequency_penalty": 0.4}
    assert next_token(sequence([0], [1, 1], **params), logits, 4) == 1
    assert next_token(sequence([0], [1, 1, 1], **params), logits, 4) == 2


def test_greedy_ignores_penalties_and_takes_the_lowest_id_on_ties() -> None:
    logits = torch.tensor([[1.0, 5.0, 5.0, 9.0]])
    assert next_token(sequence([0], [1, 1, 1], presence_penalty=2.0), logits, 3) == 1


def test_repetition_divides_a_positive_logit_and_multiplies_another() -> None:
    params = {"temperature": 1e-3, "repetition_penalty": 2.0}
    logits = torch.tensor([[-1.0, 5.0, 2.6, -50.0]])
    assert next_token(sequence([1], [], **params), logits, 4) == 1
    assert next_token(sequence([1], [1], **params), logits, 4) == 2
    negative = torch.tensor([[-3.0, -1.6, -50.0]])
    assert next_token(sequence([0], [], **params), negative, 3) == 1
    assert next_token(sequence([0], [1], **params), negative, 3) == 0


def test_rows_drawn_together_have_their_own_penalties() -> None:
    """One call for all of them, and each row's token is what it is alone."""
    logits = torch.randn(6, 40, generator=torch.Generator().manual_seed(3))
    mixed = (
        {"temperature": 1.0, "presence_penalty": 3.0},
        {"temperature": 1.0},
        {"temperature": 0.0, "presence_penalty": 3.0},
        {"temperature": 1.0, "frequency_penalty": 2.0, "repetition_penalty": 1.5},
        {"temperature": 1.0, "repetition_penalty": 3.0},
        {"temperature": 1.0, "presence_penalty": -3.0},
    )
    best = logits.topk(4).indices.tolist()
    made = [sequence([7], ids, **params) for ids, params in zip(best, mixed, strict=True)]
    for seed in range(40):
        for one in made:
            one.sampling = replace(one.sampling, seed=seed)
        together = draw_pieces([Piece(one, 1, 1) for one in made], logits, 40)
        for index, one in enumerate(made):
            row = logits[index : index + 1]
            assert together[index].tokens == (next_token(one, row, 40),)
            rules = [one.sampling], [one.counts]
            (alone,) = draw_pieces([Piece(plain(one), 1, 1)], penalised(*rules, row), 40)
            assert together[index].tokens == alone.tokens


def plain(one: Sequence) -> Sequence:
    """The same sequence without penalties of its own."""
    free = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0}
    return replace(one, sampling=replace(one.sampling, **free))


def test_e2_penalties_count_the_tokens_drawn_before_in_the_block() -> None:
    """E2: three rows of one pass, each with the penalties that it would have alone."""
    logits = torch.tensor([[0.0, 5.0, 4.0, 3.0]] * 3)
    made = sequence([0], [3], temperature=1e-3, repetition_penalty=4.0)
    made.drafts = [1, 2]
    (drawn,) = draw_pieces([Piece(made, 3, 3, held=True)], logits, 4)
    assert drawn.tokens == (1, 2, 1)
    assert made.counts == {3: 1}


@pytest.mark.parametrize("temperature", [0.0, 1e-3])
def test_a_bias_lifts_and_bans(temperature: float) -> None:
    logits = torch.tensor([[0.0, 5.0, 4.0, -50.0]])
    lifted = (LogitBias(0, 5.5),)
    banned = (LogitBias(1, -100.0), LogitBias(0, -1.0))
    assert next_token(sequence([0], [], temperature=temperature), logits, 4) == 1
    assert next_token(sequence([0], [], temperature=temperature, logit_bias=lifted), logits, 4) == 0
    assert next_token(sequence([0], [], temperature=temperature, logit_bias=banned), logits, 4) == 2


def test_a_bias_is_that_of_its_own_rows_only() -> None:
    """One pass over a block of a biased sequence and a row of another one."""
    logits = torch.tensor([[0.0, 5.0, 4.0]] * 3)
    made = sequence([0], [1], logit_bias=(LogitBias(2, 3.0),))
    made.drafts = [2]
    other = sequence([0], [1])
    drawn = draw_pieces([Piece(made, 2, 2, held=True), Piece(other, 1, 1)], logits, 3)
    assert [d.tokens for d in drawn] == [(2, 2), (1,)]
    assert torch.equal(logits, torch.tensor([[0.0, 5.0, 4.0]] * 3))


def test_a_bias_comes_before_penalties() -> None:
    """8 / 2 is below 5; were the penalty first, 2.5 + 5.5 would win."""
    logits = torch.tensor([[0.0, 2.5, 5.0]])
    params = {"temperature": 1e-3, "repetition_penalty": 2.0, "logit_bias": (LogitBias(1, 5.5),)}
    assert next_token(sequence([0], [], **params), logits, 3) == 1
    assert next_token(sequence([0], [1], **params), logits, 3) == 2


@pytest.mark.parametrize("temperature", [1e-9, 1e-300, 5e-324])
def test_e11_a_tiny_temperature_takes_the_best(temperature: float) -> None:
    """E11: neither the lowest id nor a failure, though weights underflow."""
    logits = torch.randn(8, 500, generator=torch.Generator().manual_seed(2)) * 30
    for seed, row in enumerate(logits):
        made = sequence([0], [], temperature=temperature, seed=seed)
        assert next_token(made, row.unsqueeze(0), 500) == int(row.argmax())


@pytest.mark.parametrize("temperature", [0.0, 1e-9, 1.0])
def test_e11_logits_that_are_not_finite_are_an_error(temperature: float) -> None:
    logits = torch.zeros(1, 50)
    logits[0, 7] = float("nan")
    with pytest.raises(GenerationError, match="non-finite logits at position 1"):
        next_token(sequence([0], [], temperature=temperature), logits, 50)


@pytest.mark.parametrize("top_k", [21, 500, 4000])
def test_any_number_of_best_tokens(top_k: int) -> None:
    logits = torch.arange(5000, 0, -1).reshape(1, -1) * 1e-6
    drawn = {
        next_token(sequence([0], [], temperature=2.0, top_k=top_k, seed=seed), logits, 5000)
        for seed in range(400)
    }
    assert top_k * 0.9 < max(drawn) < top_k


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_ids_beyond_the_bound_never_win(temperature: float) -> None:
    logits = torch.tensor([[0.0, 1.0, float("nan"), 99.0]])
    for seed in range(20):
        assert next_token(sequence([0], [], temperature=temperature, seed=seed), logits, 2) < 2


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 5e-324},
        {"temperature": 1e300},
        {"temperature": 1.0, "top_p": 5e-324},
        {"temperature": 1.0, "min_p": 1.0},
        {"temperature": 1.0, "repetition_penalty": 0.01},
        {"temperature": 1.0, "repetition_penalty": 10.0},
        {"temperature": 1.0, "presence_penalty": -100.0, "frequency_penalty": 100.0},
    ],
)
def test_values_at_their_bounds_leave_a_draw(params: dict[str, float]) -> None:
    made = sequence([0], [3, 3, 5], **params)
    check_sampling(made.sampling, 50)
    logits = torch.randn(1, 64, generator=torch.Generator().manual_seed(1)) * 100
    assert 0 <= next_token(made, logits, 50) < 50


@pytest.mark.parametrize(
    "params",
    [
        {"repetition_penalty": 5e-324},
        {"repetition_penalty": 1e300},
        {"presence_penalty": 1e39},
        {"frequency_penalty": -1e39},
        {"temperature": float("inf")},
    ],
)
def test_values_that_make_infinities_are_refused(params: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(params))):
        check_sampling(SamplingParams(**params), 50)
