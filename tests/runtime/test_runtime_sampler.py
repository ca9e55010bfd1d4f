"""The next token: which random number it uses, and what penalties count."""

import pytest
import torch

from ninfer.ops import Purpose, uniform
from ninfer.request import SamplingParams
from ninfer.runtime.sampler import draw_uniform, next_token
from ninfer.runtime.sequence import Sequence


def sequence(prompt: list[int], generated: list[int], **params: float) -> Sequence:
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


def test_penalties_count_generated_tokens_only() -> None:
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


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_ids_beyond_the_bound_never_win(temperature: float) -> None:
    logits = torch.tensor([[0.0, 1.0, float("nan"), 99.0]])
    for seed in range(20):
        assert next_token(sequence([0], [], temperature=temperature, seed=seed), logits, 2) < 2
