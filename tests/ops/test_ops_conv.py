"""Causal convolution against loops, and its state over every cut of a sequence."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ninfer.ops import ConvState, RaggedRows, causal_conv_silu
from ninfer.ops.case import Inputs


def ragged(new: list[int]) -> RaggedRows:
    """Rows of new sequences; the first owns the same state slot in every call."""
    rows = Inputs(torch.float32, torch.device("cpu"), seed=1).ragged(new)
    return replace(rows, state_slots=torch.tensor([1, 4, 0, 3])[: len(new)])


def state_of(inputs: Tensor, window: int = 0, pending: int = 0) -> ConvState:
    """Committed inputs [S, W - 1, C], and a window of NaN."""
    slots, _, channels = inputs.shape
    rows = torch.full((slots, window, channels), torch.nan, dtype=inputs.dtype)
    return ConvState(inputs, rows, torch.full((slots,), pending))


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
    got = causal_conv_silu(x, weight, state_of(state), rows)
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
    whole = causal_conv_silu(x, weight, state_of(whole_state), ragged([9]))
    parts = [
        causal_conv_silu(part, weight, state_of(cut_state), ragged([part.shape[0]]))
        for part in (x[:cut], x[cut:])
    ]
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(cut_state, whole_state)


def test_newest_input_meets_the_last_tap():
    weight = torch.tensor([[0.0], [0.0], [0.0], [2.0]])
    x = torch.tensor([[3.0]])
    got = causal_conv_silu(x, weight, state_of(torch.full((2, 3, 1), 100.0)), ragged([1]))
    assert got.item() == pytest.approx(6 / (1 + math.exp(-6)))


def test_held_rows_stay_in_the_window_until_they_are_accepted():
    """Of three held rows the first two are accepted; two others follow them."""
    x, weight = torch.randn(5, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    past = torch.randn(2, 3, 3, dtype=torch.float64)
    state = state_of(past.clone(), window=4)
    held = replace(ragged([3]), held=torch.tensor([True]))
    got = causal_conv_silu(x[:3], weight, state, held)
    assert torch.allclose(got, loops(past[1], x[:3], weight), rtol=1e-13, atol=1e-13)
    assert torch.equal(state.inputs, past)
    assert torch.equal(state.window[1, :3], x[:3])
    assert state.window[1, 3].isnan().all() and state.window[0].isnan().all()
    state.pending[1] = 2
    got = causal_conv_silu(x[3:], weight, state, replace(held, offsets=torch.tensor([0, 2])))
    run = torch.cat((x[:2], x[3:]))
    assert torch.allclose(got, loops(past[1], run, weight)[2:], rtol=1e-13, atol=1e-13)
    assert torch.equal(state.inputs[1], torch.cat((past[1, 2:], x[:2])))
    assert torch.equal(state.window[1, :3], torch.cat((x[3:], x[2:3])))
    assert state.pending.tolist() == [0, 2]
    state.pending[1] = 1
    causal_conv_silu(x[4:], weight, state, ragged([1]))
    assert torch.equal(state.inputs[1], torch.cat((x[1:2], x[3:])))


def test_a_sequence_without_rows_keeps_what_it_owes():
    state = state_of(torch.randn(2, 3, 3), window=2, pending=1)
    before = state.inputs.clone()
    causal_conv_silu(torch.randn(0, 3), torch.randn(4, 3), state, ragged([0]))
    assert torch.equal(state.inputs, before)


def test_more_held_rows_than_the_window_takes_are_refused():
    state = state_of(torch.randn(3, 3, 3), window=2)
    before = state.inputs.clone()
    rows = replace(ragged([1, 3]), state_slots=torch.tensor([1, 2]))
    rows = replace(rows, held=torch.tensor([False, True]))
    with pytest.raises(ValueError, match=r"rows.held is true for a sequence of 3 rows, .* most 2"):
        causal_conv_silu(torch.randn(4, 3), torch.randn(4, 3), state, rows)
    assert torch.equal(state.inputs, before)
