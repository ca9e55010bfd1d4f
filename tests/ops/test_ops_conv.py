"""Causal convolution against loops, and its state over every cut of a sequence."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ninfer.ops import RaggedRows, causal_conv_silu
from ninfer.ops.case import Inputs


def ragged(new: list[int]) -> RaggedRows:
    """Rows of new sequences; the first owns the same state slot in every call."""
    rows = Inputs(torch.float32, torch.device("cpu"), seed=1).ragged(new)
    return replace(rows, state_slots=torch.tensor([1, 4, 0, 3])[: len(new)])


def loops(past: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """silu of the sum over taps, reading the past inputs where t - (W - 1) + j is negative."""
    width, out = weight.shape[0], torch.zeros_like(x)
    for t in range(x.shape[0]):
        for c in range(x.shape[1]):
            total = 0.0
            for j in range(width):
                at = t - (width - 1) + j
                value = x[at, c] if at >= 0 else past[width - 1 + at, c]
                total += float(weight[j, c]) * float(value)
            out[t, c] = total / (1 + math.exp(-total))
    return out


@pytest.mark.parametrize("width", [2, 4])
def test_loops(width: int):
    new = [5, 1, 0, 2]
    rows = ragged(new)
    x = torch.randn(8, 3, dtype=torch.float64)
    weight = torch.randn(width, 3, dtype=torch.float64)
    state = torch.randn(5, width - 1, 3, dtype=torch.float64)
    before = state.clone()
    got = causal_conv_silu(x, weight, state, rows)
    for b, (start, stop) in enumerate(rows.spans()):
        slot = int(rows.state_slots[b])
        want = loops(before[slot], x[start:stop], weight)
        assert torch.allclose(got[start:stop], want, rtol=1e-13, atol=1e-13)
        history = torch.cat((before[slot], x[start:stop]))
        assert torch.equal(state[slot], history[history.shape[0] - (width - 1) :])
    unused = (set(range(5)) - set(rows.state_slots.tolist())).pop()
    assert torch.equal(state[unused], before[unused])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("cut", range(10))
def test_cutting_a_sequence_changes_no_bit(cut: int, dtype: torch.dtype):
    x, weight = torch.randn(9, 6).to(dtype), torch.randn(4, 6).to(dtype)
    past = torch.randn(2, 3, 6).to(dtype)
    whole_state, cut_state = past.clone(), past.clone()
    whole = causal_conv_silu(x, weight, whole_state, ragged([9]))
    parts = [
        causal_conv_silu(part, weight, cut_state, ragged([part.shape[0]]))
        for part in (x[:cut], x[cut:])
    ]
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(cut_state, whole_state)


def test_newest_input_meets_the_last_tap():
    weight = torch.tensor([[0.0], [0.0], [0.0], [2.0]])
    x = torch.tensor([[3.0]])
    got = causal_conv_silu(x, weight, torch.full((2, 3, 1), 100.0), ragged([1]))
    assert got.item() == pytest.approx(6 / (1 + math.exp(-6)))
