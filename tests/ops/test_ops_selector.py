"""Choice of drafts: ranking with ties, edge scores as sums, softmax at any temperature."""

import math

import pytest
import torch

from ninfer.ops import edge_scores, indexed_argmax, indexed_top, tempered_softmax

NAN, INF = math.nan, math.inf


def ranked(logits: list[float], ids: list[int], count: int) -> list[tuple[float, int]]:
    pairs = [(value, token) for value, token in zip(logits, ids, strict=False)]
    return sorted(pairs, key=lambda pair: (-pair[0], pair[1]))[:count]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(("columns", "known"), [(1, 1), (60, 60), (200, 131)])
def test_ranking_with_ties(columns: int, known: int, dtype: torch.dtype):
    logits = (torch.randn(20, columns) * 2).round().to(dtype)
    ids = torch.randperm(1000)[:known]
    best = indexed_argmax(logits, ids).tolist()
    for count in {1, min(16, known), known}:
        values, found = indexed_top(logits, ids, count)
        assert values.dtype is dtype
        for row in range(20):
            want = ranked(logits[row].tolist(), ids.tolist(), count)
            got = list(zip(values[row].tolist(), found[row].tolist(), strict=True))
            assert got == want
            assert best[row] == want[0][1]


def test_columns_without_an_id_are_not_looked_at():
    logits = torch.tensor([[1.0, 2.0, 9.0], [3.0, 2.0, NAN]])
    ids = torch.tensor([7, 5])
    assert indexed_argmax(logits, ids).tolist() == [5, 7]
    assert indexed_top(logits, ids, 2)[1].tolist() == [[5, 7], [7, 5]]


def test_unusable_rows_have_no_argmax():
    logits = torch.tensor([[NAN, 1.0], [INF, 1.0], [-INF, -INF], [-INF, 1.0]])
    assert indexed_argmax(logits, torch.tensor([8, 3])).tolist() == [-1, -1, -1, 3]
    assert indexed_top(logits[:1], torch.tensor([8, 3]), 2)[1].tolist() == [[3, 8]]


def test_edge_scores_are_the_sum():
    logits = torch.randn(3, 4, dtype=torch.float64)
    ids, previous = torch.randint(0, 30, (3, 4)), torch.randint(0, 30, (3,))
    gate = torch.randn(3, 5, dtype=torch.float64)
    before, after = torch.randn(2, 30, 5, dtype=torch.float64)
    got = edge_scores(logits, ids, previous, gate, before, after)
    for i in range(3):
        for c in range(4):
            total = float(logits[i, c])
            for r in range(5):
                left = float(before[previous[i], r]) * float(gate[i, r])
                total += left * float(after[ids[i, c], r])
            assert float(got[i, c]) == pytest.approx(total, abs=1e-14)


def test_edge_scores_of_bf16_are_float32():
    parts = [torch.randn(*shape).bfloat16() for shape in ((2, 4), (2, 8), (9, 8), (9, 8))]
    ids, previous = torch.randint(0, 9, (2, 4)), torch.randint(0, 9, (2,))
    got = edge_scores(parts[0], ids, previous, *parts[1:])
    wide = [part.double() for part in parts]
    want = edge_scores(wide[0], ids, previous, *wide[1:])
    assert got.dtype is torch.float32
    assert (got - want).abs().max() < 1e-5


def test_softmax_at_a_temperature():
    scores = [[1.0, 3.0, 3.0, -2.0]] * 4
    heat = torch.tensor([0.0, 0.5, 2.0, -1.0])
    got = tempered_softmax(torch.tensor(scores, dtype=torch.float64), heat).tolist()
    assert got[0] == got[3] == [0.0, 1.0, 0.0, 0.0]
    for row, temperature in ((1, 0.5), (2, 2.0)):
        powers = [math.exp(score / temperature) for score in scores[row]]
        assert got[row] == pytest.approx([power / sum(powers) for power in powers], abs=1e-15)


def test_a_tiny_temperature_does_not_overflow():
    got = tempered_softmax(torch.tensor([[90.0, -90.0, 89.0]]), torch.tensor([1e-30]))
    assert got.tolist() == [[1.0, 0.0, 0.0]]


def test_wrong_arguments_are_named():
    logits, ids = torch.randn(2, 5), torch.arange(5)
    with pytest.raises(ValueError, match="indexed_argmax: ids is of shape"):
        indexed_argmax(logits, torch.arange(6))
    with pytest.raises(ValueError, match=r"indexed_argmax: ids is torch\.int32"):
        indexed_argmax(logits, ids.int())
    with pytest.raises(ValueError, match="indexed_top: count is 6"):
        indexed_top(logits, ids, 6)
    with pytest.raises(ValueError, match="edge_scores: gate is of shape"):
        edge_scores(
            logits,
            ids.expand(2, -1),
            ids[:2],
            torch.randn(1, 3),
            torch.randn(5, 3),
            torch.randn(5, 3),
        )
    with pytest.raises(ValueError, match="tempered_softmax: temperature is of shape"):
        tempered_softmax(logits, torch.ones(3))
