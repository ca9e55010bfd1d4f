"""Sampling: hand-made cuts and ties, the drawn distribution, unusable logits, penalties."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ninfer.ops import (
    add_bias,
    argmax,
    candidates,
    draw,
    finite_rows,
    logprobs,
    mask,
    next_tokens,
    penalise,
    sample,
    top_logprobs,
)
from ninfer.ops.sampling.ranking import best
from ninfer.ops.tensors import (
    AllowedTokens,
    Candidates,
    DrawSettings,
    TokenBias,
    TokenPenalties,
)


def settings(rows: int = 1, *, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0) -> dict[str, Tensor]:
    return {
        "temperature": torch.full((rows,), temperature),
        "top_k": torch.full((rows,), top_k),
        "top_p": torch.full((rows,), top_p),
        "min_p": torch.full((rows,), min_p),
    }


def kept(logits: list[float], **cuts: Any) -> tuple[list[int], list[float]]:
    """Ids and weights of one row, padding dropped."""
    choice = candidates(torch.tensor([logits]), limit=len(logits), **settings(**cuts))
    live = choice.weights[0] > 0
    return choice.ids[0][live].tolist(), choice.weights[0][live].tolist()


# Probabilities 0.1, 0.4, 0.2, 0.1, 0.2: ranked 1, 2, 4, 0, 3 with ties by id.
LOGITS = [math.log(p) for p in (1.0, 4.0, 2.0, 1.0, 2.0)]
LOGITS[4], LOGITS[3] = LOGITS[2], LOGITS[0]


@pytest.mark.parametrize(
    ("cuts", "want"),
    [
        ({}, [1, 2, 4, 0, 3]),
        ({"top_k": 1}, [1]),
        ({"top_k": 2}, [1, 2]),
        ({"top_k": 4}, [1, 2, 4, 0]),
        ({"top_k": 5}, [1, 2, 4, 0, 3]),
        ({"top_k": 99}, [1, 2, 4, 0, 3]),
        ({"top_p": 0.0}, [1]),
        ({"top_p": 0.39}, [1]),
        ({"top_p": 0.41}, [1, 2]),
        ({"top_p": 0.79}, [1, 2, 4]),
        ({"top_p": 0.81}, [1, 2, 4, 0]),
        ({"top_p": 1.0}, [1, 2, 4, 0, 3]),
        ({"min_p": 0.49}, [1, 2, 4]),
        ({"min_p": 0.51}, [1]),
        ({"min_p": 1.0}, [1]),
        # The nucleus is a share of what top_k left: 4 of 4 + 2 + 2, so 0.5 is reached at once.
        ({"top_k": 3, "top_p": 0.49}, [1]),
        ({"top_k": 3, "top_p": 0.51}, [1, 2]),
        # but not of what min_p left, which is cut from the same list.
        ({"min_p": 0.49, "top_p": 0.79}, [1, 2, 4]),
        ({"min_p": 0.49, "top_p": 0.81}, [1, 2, 4]),
        # Temperature comes before both cuts: at 0.5 the weights are 1, 1/4, 1/4, 1/16, 1/16.
        ({"temperature": 0.5, "min_p": 0.3}, [1]),
        ({"temperature": 0.5, "min_p": 0.2}, [1, 2, 4]),
        ({"temperature": 0.5, "top_p": 0.61}, [1]),
        ({"temperature": 0.0}, [1]),
        ({"temperature": -1.0}, [1]),
    ],
)
def test_cuts(cuts: dict[str, Any], want: list[int]):
    assert kept(LOGITS, **cuts)[0] == want


def test_nucleus_keeps_the_token_that_reaches_it_exactly():
    equal = [0.0, 0.0, 0.0, 0.0]
    assert kept(equal, top_p=0.5)[0] == [0, 1]
    assert kept(equal, top_p=0.75)[0] == [0, 1, 2]
    assert kept(equal, min_p=1.0)[0] == [0, 1, 2, 3]


def test_weights_are_powers_relative_to_the_best():
    ids, weights = kept([1.0, 3.0, 2.0], temperature=2.0)
    assert ids == [1, 2, 0]
    assert weights == pytest.approx([1.0, math.exp(-0.5), math.exp(-1.0)], rel=1e-15)


@pytest.mark.parametrize("temperature", [1e-9, 1e-38, 1e-45])
def test_tiny_temperature_is_greedy_without_nan(temperature: float):
    logits = torch.tensor([[5.0, 9.0, 8.999, -torch.inf]])
    choice = candidates(logits, limit=4, **settings(temperature=temperature))
    assert choice.ids[0, 0] == 1
    assert choice.weights[0].tolist() == [1.0]
    for u in (0.0, 0.5, 1 - 2**-24):
        assert (
            sample(logits, limit=4, u=torch.tensor([u]), **settings(temperature=temperature)) == 1
        )


def test_huge_temperature_is_uniform():
    _, weights = kept([-50.0, 0.0, 50.0], temperature=1e30)
    assert weights == pytest.approx([1.0, 1.0, 1.0])


def test_draw_is_strict_inverse_cdf():
    choice = Candidates(torch.tensor([[7, 3, 9]]), torch.tensor([[2.0, 1.0, 1.0]]).double())
    for u, want in ((0.0, 7), (0.4999, 7), (0.5, 3), (0.7499, 3), (0.75, 9), (1 - 2**-24, 9)):
        assert draw(choice, torch.tensor([u])).tolist() == [want]


def test_zero_weights_are_never_drawn():
    weights = torch.tensor([[0.0, 1.0, 0.0, 1.0, 0.0]]).double()
    choice = Candidates(torch.arange(5).unsqueeze(0), weights)
    drawn = {int(draw(choice, torch.tensor([u]))) for u in (0.0, 0.25, 0.5, 0.75, 1 - 2**-24)}
    assert drawn == {1, 3}


def test_rows_have_their_own_settings():
    logits = torch.tensor([LOGITS]).repeat(4, 1)
    own = {
        "temperature": torch.tensor([0.0, 1.0, 1.0, 1.0]),
        "top_k": torch.tensor([0, 0, 2, 0]),
        "top_p": torch.tensor([1.0, 1.0, 1.0, 0.5]),
        "min_p": torch.zeros(4),
        "u": torch.full((4,), 1 - 2**-24),
    }
    together = sample(logits, limit=5, **own)
    assert together.tolist() == [1, 3, 2, 2]
    for row in range(4):
        alone = {name: setting[row : row + 1] for name, setting in own.items()}
        assert sample(logits[row : row + 1], limit=5, **alone).item() == together[row]


# Quantiles 0.999 of the chi-square law by degrees of freedom.
CHI_SQUARE = {2: 13.82, 4: 18.47, 9: 27.88}


@pytest.mark.parametrize(
    ("cuts", "count"),
    [
        ({"temperature": 0.8}, 10),
        ({"temperature": 1.7, "top_k": 5}, 5),
        ({"temperature": 1.0, "top_k": 5, "top_p": 0.7, "min_p": 0.05}, 3),
    ],
)
def test_draws_follow_the_distribution(cuts: dict[str, Any], count: int):
    logits = torch.linspace(-1, 1, 10)[torch.randperm(10)]
    scaled = sorted((value / cuts["temperature"], -i) for i, value in enumerate(logits.tolist()))
    ids = [-i for _, i in reversed(scaled)][:count]
    powers = torch.tensor([math.exp(logits[i].item() / cuts["temperature"]) for i in ids])
    draws = 20_000
    got = sample(logits.repeat(draws, 1), limit=10, u=torch.rand(draws), **settings(draws, **cuts))
    observed = torch.tensor([int((got == i).sum()) for i in ids])
    assert int(observed.sum()) == draws
    expected = powers / powers.sum() * draws
    assert float(((observed - expected) ** 2 / expected).sum()) < CHI_SQUARE[count - 1]


def test_argmax_takes_the_lowest_id_below_the_limit():
    logits = torch.tensor([[1.0, 5.0, 5.0, 9.0], [2.0, 2.0, 2.0, 2.0], [-0.0, 0.0, -1.0, 3.0]])
    assert argmax(logits, 3).tolist() == [1, 0, 0]
    assert argmax(logits, 4).tolist() == [3, 0, 3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_unusable_rows_are_found_and_give_no_token(dtype: torch.dtype):
    logits = torch.zeros(6, 5, dtype=dtype)
    logits[0, 3], logits[1, 2], logits[2] = torch.nan, torch.inf, -torch.inf
    logits[3, :3], logits[4, 4] = -torch.inf, torch.nan
    assert finite_rows(logits, 4).tolist() == [False, False, False, True, True, True]
    assert argmax(logits, 4).tolist() == [-1, -1, -1, 3, 0, 0]
    for temperature in (0.0, 1.0):
        got = sample(
            logits, limit=4, u=torch.full((6,), 0.9), **settings(6, temperature=temperature)
        )
        assert got[:3].tolist() == [-1, -1, -1]
        assert (got[3:] >= 0).all() and (got[3:] < 4).all()


def test_masked_logits_are_never_drawn():
    logits = torch.tensor([[-torch.inf, 1.0, -torch.inf, 1.0]])
    for cuts in ({}, {"top_k": 3}, {"top_p": 0.999}):
        drawn = {
            int(sample(logits, limit=4, u=torch.tensor([u]), **settings(**cuts)))
            for u in (0.0, 0.3, 0.5, 0.9, 1 - 2**-24)
        }
        assert drawn == {1, 3}


def test_top_k_by_threshold_equals_a_full_sort():
    logits = torch.randn(1, 5000).mul(2).round()
    for k in (1, 20, 700, 4999):
        got = candidates(logits, limit=5000, **settings(top_k=k)).ids[0].tolist()
        want = sorted(range(5000), key=lambda i: (-float(logits[0, i]), i))[:k]
        assert got == want


def test_penalties_formula():
    logits = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    counts = torch.tensor([[0, 1, 3], [2, 0, 0]], dtype=torch.int32)
    got = penalise(logits, counts, torch.tensor([0.5, 0.0]), torch.tensor([0.25, -1.0]))
    assert got.tolist() == [[1.0, 1.25, 1.75], [6.0, 5.0, 6.0]]
    assert penalise(logits.bfloat16(), counts, torch.ones(2), torch.ones(2)).dtype is torch.float32


def test_repetition_comes_before_the_other_penalties():
    logits = torch.tensor([[3.0, -3.0, 3.0, 0.0], [3.0, -3.0, 3.0, 0.0]])
    counts = torch.tensor([[1, 2, 0, 1], [1, 2, 0, 1]])
    presence, off = torch.tensor([0.5, 0.0]), torch.zeros(2)
    got = penalise(logits, counts, presence, off, torch.tensor([1.5, 1.0]))
    assert got[0].tolist() == [1.5, -5.0, 3.0, -0.5]
    assert torch.equal(got[1], logits[1])


def test_bias_is_added_where_it_is_given():
    logits = torch.zeros(2, 4, dtype=torch.bfloat16)
    rows, ids = torch.tensor([1, 0, 1]), torch.tensor([3, 0, 0])
    got = add_bias(logits, rows, ids, torch.tensor([1e-3, -100.0, -torch.inf]))
    assert got.dtype is torch.float32
    assert got.tolist() == [[-100.0, 0, 0, 0], [-torch.inf, 0, 0, pytest.approx(1e-3, rel=1e-6)]]
    nothing = torch.zeros(0, dtype=torch.int64)
    assert torch.equal(add_bias(logits, nothing, nothing, torch.zeros(0)), logits.float())


@pytest.mark.parametrize(("vocabulary", "words"), [(96, 3), (70, 3), (100, 2), (33, 1)])
def test_mask_reads_bits_from_the_lowest_up(vocabulary: int, words: int):
    allowed = torch.randint(-(2**31), 2**31, (3, words)).to(torch.int32)
    logits = torch.randn(3, vocabulary).bfloat16()
    got = mask(logits, allowed)
    assert got.dtype is torch.bfloat16
    for row, bits in enumerate(allowed.tolist()):
        for i in range(vocabulary):
            is_allowed = i < 32 * words and bits[i // 32] % 2**32 >> i % 32 & 1
            assert got[row, i] == (logits[row, i] if is_allowed else -torch.inf)


def test_a_row_without_an_allowed_id_gives_no_token():
    allowed = torch.tensor([[0, 0], [-1, 0]], dtype=torch.int32)
    logits = mask(torch.zeros(2, 40), allowed)
    assert sample(logits, limit=40, u=torch.zeros(2), **settings(2)).tolist() == [-1, 0]


def test_top_logprobs():
    logits = torch.tensor([[0.0, 2.0, 2.0, 1.0, 9.0], [0.0, torch.nan, 0.0, 0.0, 0.0]])
    ids, values = top_logprobs(logits, 4, 3)
    assert ids.tolist() == [[1, 2, 3], [-1, -1, -1]]
    assert torch.equal(values[:1], logprobs(logits[:1], ids[:1], 4))
    assert values[1].isnan().all()
    ids, values = top_logprobs(logits, 4, 0)
    assert (ids.shape, values.shape) == ((2, 0), (2, 0))


@pytest.mark.parametrize("width", [1, 7, 2048, 2049, 5000, 20_011])
@pytest.mark.parametrize("levels", [1, 3, 40, 10**6])
def test_ranking_equals_a_stable_sort(width: int, levels: int):
    """Few levels: ties inside blocks, across blocks and at the border of the list."""
    x = torch.randint(0, levels, (3, width)).float()
    x[0, ::3] = -torch.inf
    want = x.sort(descending=True, stable=True).indices
    for count in {1, 2, 20, 64, 700, width} & set(range(width + 1)):
        assert torch.equal(best(x, count), want[:, :count])


SHAPES = {"flat": 0.05, "usual": 3.0, "steep": 30.0}


def slow_list(x: Tensor, heat: float, top_k: int, top_p: float, min_p: float) -> list[int]:
    """Candidates in Python floats from a whole sort."""
    order = sorted(range(len(x)), key=lambda i: (-float(x[i]), i))[: top_k or None]
    weights = [math.exp((float(x[i]) - float(x[order[0]])) / heat) for i in order]
    total, running, kept = math.fsum(weights), 0.0, []
    for i, weight in zip(order, weights, strict=True):
        if weight < min_p:
            break
        kept.append(i)
        running += weight
        if top_p < 1 and running >= top_p * total:
            break
    return kept


@pytest.mark.parametrize("shape", SHAPES)
def test_lists_that_grow_equal_a_whole_sort(shape: str):
    """Cuts that fall inside the first list, behind it, behind the second one, and nowhere."""
    logits = torch.randn(1, 6000) * SHAPES[shape]
    for top_k, top_p, min_p in (
        (0, 0.5, 0.0),
        (0, 0.95, 0.0),
        (0, 0.999, 0.0),
        (0, 1.0, 0.05),
        (0, 1.0, 1e-9),
        (0, 0.9, 0.5),
        (0, 0.9, 1e-4),
        (20, 0.9, 0.01),
        (700, 0.9, 0.0),
        (5000, 0.99, 0.0),
        (5000, 1.0, 0.0),
    ):
        got = candidates(
            logits,
            limit=6000,
            temperature=torch.tensor([0.8], dtype=torch.float64),
            top_k=torch.tensor([top_k]),
            top_p=torch.tensor([top_p], dtype=torch.float64),
            min_p=torch.tensor([min_p], dtype=torch.float64),
        )
        want = slow_list(logits[0], 0.8, top_k, top_p, min_p)
        assert got.ids[0].tolist() == want, (top_k, top_p, min_p)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cuts", [{}, {"top_p": 0.9}, {"min_p": 0.02}, {"top_k": 3000}])
def test_a_draw_that_ranks_part_of_a_row_equals_one_that_ranks_it_all(
    shape: str, cuts: dict[str, Any]
):
    logits, u = torch.randn(40, 6000) * SHAPES[shape], torch.rand(40)
    u[0], u[1] = 0.0, 1 - 2**-24
    own = settings(40, temperature=0.7, **cuts)
    got = sample(logits, limit=6000, u=u, **own)
    assert torch.equal(got, draw(candidates(logits, limit=6000, **own), u))


def test_company_changes_no_draw_and_no_weight():
    """Rows of every kind side by side; some lists grow to the whole vocabulary, some do not."""
    rows = 24
    logits = torch.randn(rows, 4000) * torch.linspace(0.05, 20, rows).unsqueeze(1)
    own = {
        "temperature": torch.tensor([0.0, 0.6, 1.0, 1.4]).repeat(6),
        "top_k": torch.tensor([0, 0, 20, 2000, 0, 0]).repeat(4),
        "top_p": torch.tensor([1.0, 0.9, 1.0]).repeat(8),
        "min_p": torch.tensor([0.0, 0.0, 0.0, 0.0, 0.05]).repeat(5)[:rows],
    }
    u = torch.rand(rows)
    together = sample(logits, limit=3990, u=u, **own)
    lists = candidates(logits, limit=3990, **own)
    for row in range(rows):
        part = slice(row, row + 1)
        alone = {name: value[part] for name, value in own.items()}
        assert sample(logits[part].clone(), limit=3990, u=u[part], **alone) == together[row]
        one = candidates(logits[part].clone(), limit=3990, **alone)
        width = one.ids.shape[1]
        assert torch.equal(lists.weights[row, :width], one.weights[0])
        assert torch.equal(lists.ids[row, :width], one.ids[0])
        assert (lists.weights[row, width:] == 0).all()


def test_a_uniform_that_rounds_up_to_1_draws_the_last_candidate():
    choice = Candidates(torch.tensor([[7, 3, 0]]), torch.tensor([[1.0, 2.0, 0.0]]).double())
    assert draw(choice, torch.tensor([1 - 2**-53], dtype=torch.float64)).tolist() == [3]


def test_logprobs_ignore_ids_beyond_the_limit():
    logits = torch.tensor([[0.0, math.log(3.0), 50.0]])
    got = logprobs(logits, torch.tensor([[1, 0]]), 2)
    assert got[0].tolist() == pytest.approx([math.log(0.75), math.log(0.25)], rel=1e-6)


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        ({"limit": 0}, "limit is 0"),
        ({"seeds": torch.zeros(2)}, "seeds is torch.float32"),
        ({"top_k": torch.zeros(2)}, "top_k is torch.float32"),
        ({"counts": torch.zeros(1, 5, dtype=torch.int32)}, "penalties.counts is of shape"),
        ({"counts": torch.zeros(1, 6)}, "penalties.counts is torch.float32"),
        ({"masks": torch.zeros(1, 2, dtype=torch.int32)}, "allowed.masks is of shape"),
        ({"values": torch.zeros(2, 3)}, "bias.values is of shape"),
    ],
)
def test_wrong_settings_and_rules_of_next_tokens_are_named(change: dict[str, Any], seen: str):
    ids, ones = torch.zeros(2, dtype=torch.int64), torch.ones(2)
    given: dict[str, Any] = {
        "limit": 6,
        "seeds": ids,
        "top_k": ids,
        "counts": torch.zeros(1, 6, dtype=torch.int32),
        "masks": torch.zeros(1, 1, dtype=torch.int32),
        "values": torch.zeros(2, 1),
        **change,
    }
    with pytest.raises(ValueError, match=f"next_tokens: {seen}"):
        next_tokens(
            torch.zeros(2, 6),
            DrawSettings(ones, given["top_k"], ones, ones, given["seeds"], ids, ids),
            limit=given["limit"],
            bias=TokenBias(ids.unsqueeze(1), given["values"]),
            penalties=TokenPenalties(given["counts"], ids, ids.unsqueeze(1), ones, ones, ones),
            allowed=AllowedTokens(given["masks"], ids),
        )
