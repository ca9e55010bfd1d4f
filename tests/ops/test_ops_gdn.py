"""Gated delta rule against loops in Python floats, transformers, and its own chunked form."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers.models.qwen3_5.modeling_qwen3_5 import (
    torch_chunk_gated_delta_rule,
    torch_recurrent_gated_delta_rule,
)

from ninfer.ops import DeltaState, RaggedRows, gated_delta_rule, gdn_gating, l2norm
from ninfer.ops.case import Inputs
from ninfer.ops.gdn.reference import chunked, recurrent

FLOAT64 = torch.float64
Rows = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def ragged(new: list[int]) -> RaggedRows:
    """Rows of new sequences; the first owns the same state slot in every call."""
    rows = Inputs(torch.float32, torch.device("cpu"), seed=2).ragged(new)
    slots = torch.tensor([1, 4, 0, 3, 5])[: len(new)]
    return replace(rows, state_slots=slots)


def state_of(matrix: Tensor, parts: Rows, window: int = 0) -> DeltaState:
    """Committed matrices [S, Hv, Dv, Dk], and windows of NaN for rows like those of `parts`."""
    windows = (
        torch.full((matrix.shape[0], window, *part.shape[1:]), torch.nan, dtype=part.dtype)
        for part in parts[1:]
    )
    return DeltaState(matrix, *windows, torch.zeros(matrix.shape[0], dtype=torch.int64))


def inputs(
    count: int, heads: tuple[int, int], dims: tuple[int, int], decay: float = 1.0, dtype=FLOAT64
) -> Rows:
    q, k = (l2norm(torch.randn(count, heads[0], dims[0], dtype=dtype), eps=1e-6) for _ in range(2))
    v = torch.randn(count, heads[1], dims[1], dtype=dtype)
    g = -decay * torch.rand(count, heads[1], dtype=dtype)
    return q, k, v, g, torch.rand(count, heads[1], dtype=dtype)


def loops(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor) -> Tensor:
    """One sequence, every product written out; `state` [Hv, Dv, Dk] is updated in place."""
    out = torch.zeros_like(v)
    (count, heads, value_dim), key_dim = v.shape, q.shape[2]
    for h in range(heads):
        matrix = state[h].tolist()
        shared = h // (heads // q.shape[1])
        for t in range(count):
            key, query = k[t, shared].tolist(), q[t, shared].tolist()
            decay = math.exp(g[t, h].item())
            for i in range(value_dim):
                row = [decay * s for s in matrix[i]]
                seen = sum(a * b for a, b in zip(row, key, strict=True))
                error = beta[t, h].item() * (v[t, h, i].item() - seen)
                row = [s + error * b for s, b in zip(row, key, strict=True)]
                matrix[i] = row
                read = sum(a * b for a, b in zip(row, query, strict=True))
                out[t, h, i] = read / math.sqrt(key_dim)
        state[h] = torch.tensor(matrix, dtype=state.dtype)
    return out


def test_loops_over_ragged_sequences():
    new = [3, 67, 0, 64, 1]
    rows, parts = ragged(new), inputs(sum(new), (2, 4), (5, 3))
    state = torch.randn(6, 4, 3, 5, dtype=FLOAT64)
    want_state = state.clone()
    got = gated_delta_rule(*parts, state_of(state, parts), rows)
    for b, (start, stop) in enumerate(rows.spans()):
        slot = int(rows.state_slots[b])
        want = loops(*(x[start:stop] for x in parts), want_state[slot])
        assert torch.allclose(got[start:stop], want, rtol=0, atol=1e-12)
    assert (state - want_state).abs().max() < 1e-12
    unused = (set(range(6)) - set(rows.state_slots.tolist())).pop()
    assert torch.equal(state[unused], want_state[unused])


@pytest.mark.parametrize("dtype", [torch.float32, FLOAT64])
@pytest.mark.parametrize("decay", [0.0, 0.05, 1.0, 30.0, 300.0, 1e30])
def test_chunked_form_equals_recurrence(decay: float, dtype: torch.dtype):
    bound = 1e-5 if dtype is torch.float32 else 1e-12
    parts = inputs(64 * 10, (2, 4), (32, 16), decay, dtype)
    one, two = torch.randn(4, 16, 32, dtype=dtype).expand(2, -1, -1, -1).clone()
    want, got = recurrent(*parts, one), chunked(*parts, two)
    assert (got - want).abs().max() < bound
    assert (two - one).abs().max() < bound * max(1.0, float(one.abs().max()))


def test_one_wall_among_gentle_decays_keeps_its_neighbours_exact():
    parts = inputs(64, (1, 2), (16, 8), 0.1, torch.float32)
    parts[3][20] = -1e30
    one, two = torch.randn(2, 8, 16).expand(2, -1, -1, -1).clone()
    want, got = recurrent(*parts, one), chunked(*parts, two)
    assert (got - want).abs().max() < 1e-6
    assert (two - one).abs().max() < 1e-6


def test_real_heads_in_float32_follow_float64():
    parts = inputs(130, (2, 6), (128, 128), 0.2)
    state = torch.randn(2, 6, 128, 128, dtype=FLOAT64) * 0.1
    narrow = state.float()
    want = gated_delta_rule(*parts, state_of(state, parts), ragged([130]))
    parts = tuple(x.float() for x in parts)
    got = gated_delta_rule(*parts, state_of(narrow, parts), ragged([130]))
    assert (got - want).abs().max() < 1e-5
    assert (narrow - state).abs().max() < 1e-4


@pytest.mark.parametrize("cut", [1, 63, 64, 65, 128])
def test_state_carries_over_a_cut(cut: int):
    parts = inputs(150, (2, 4), (16, 8))
    whole_state, cut_state = (
        torch.randn(2, 4, 8, 16, dtype=FLOAT64).expand(2, -1, -1, -1, -1).clone()
    )
    whole = gated_delta_rule(*parts, state_of(whole_state, parts), ragged([150]))
    state = state_of(cut_state, parts)
    head = gated_delta_rule(*(x[:cut] for x in parts), state, ragged([cut]))
    tail = gated_delta_rule(*(x[cut:] for x in parts), state, ragged([150 - cut]))
    assert (torch.cat((head, tail)) - whole).abs().max() < 1e-13
    assert (cut_state - whole_state).abs().max() < 1e-13


def test_cut_on_the_grid_of_64_changes_no_bit():
    parts = inputs(192, (2, 4), (16, 8), dtype=torch.float32)
    whole_state, cut_state = torch.randn(2, 4, 8, 16).expand(2, -1, -1, -1, -1).clone()
    whole = gated_delta_rule(*parts, state_of(whole_state, parts), ragged([192]))
    state = state_of(cut_state, parts)
    head = gated_delta_rule(*(x[:128] for x in parts), state, ragged([128]))
    tail = gated_delta_rule(*(x[128:] for x in parts), state, ragged([64]))
    assert torch.equal(torch.cat((head, tail)), whole)
    assert torch.equal(cut_state, whole_state)


def test_held_rows_stay_in_the_window_until_they_are_accepted():
    """Of three held rows the first two are accepted; two others follow them."""
    parts = inputs(5, (2, 4), (5, 3))
    first, others = (tuple(x[part] for x in parts) for part in (slice(0, 3), slice(3, 5)))
    matrix = torch.randn(2, 4, 3, 5, dtype=FLOAT64)
    state = state_of(matrix.clone(), parts, window=4)
    held = replace(ragged([3]), held=torch.tensor([True]))
    got = gated_delta_rule(*first, state, held)
    assert torch.allclose(got, loops(*first, matrix[1].clone()), rtol=0, atol=1e-12)
    assert torch.equal(state.matrix, matrix)
    for window, part in zip(windows(state), first[1:], strict=True):
        assert torch.equal(window[1, :3], part)
        assert window[1, 3].isnan().all() and window[0].isnan().all()
    state.pending[1] = 2
    got = gated_delta_rule(*others, state, replace(held, offsets=torch.tensor([0, 2])))
    want = matrix[1].clone()
    loops(*(x[:2] for x in parts), want)
    assert torch.allclose(state.matrix[1], want, rtol=0, atol=1e-12)
    assert torch.allclose(got, loops(*others, want), rtol=0, atol=1e-12)
    for window, part in zip(windows(state), parts[1:], strict=True):
        assert torch.equal(window[1, :3], torch.cat((part[3:], part[2:3])))
    assert state.pending.tolist() == [0, 2]
    assert torch.equal(state.matrix[0], matrix[0])


def windows(state: DeltaState) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return state.keys, state.values, state.decays, state.betas


def test_a_prompt_behind_pending_rows_keeps_to_the_grid():
    """Two pending rows at 126 and 127, then a whole chunk: the same bits as all committed."""
    parts = inputs(66, (2, 4), (16, 8), dtype=torch.float32)
    matrix = torch.randn(2, 4, 8, 16)
    plain, windowed = (state_of(matrix.clone(), parts, window=2) for _ in range(2))
    rows = replace(ragged([2]), kv_lengths=torch.tensor([128]))
    after = replace(ragged([64]), kv_lengths=torch.tensor([192]))
    gated_delta_rule(*(x[:2] for x in parts), plain, rows)
    want = gated_delta_rule(*(x[2:] for x in parts), plain, after)
    gated_delta_rule(*(x[:2] for x in parts), windowed, replace(rows, held=torch.tensor([True])))
    windowed.pending[1] = 2
    got = gated_delta_rule(*(x[2:] for x in parts), windowed, after)
    assert torch.equal(got, want)
    assert torch.equal(windowed.matrix, plain.matrix)


def test_a_sequence_without_rows_keeps_what_it_owes():
    parts = inputs(0, (1, 2), (4, 4))
    state = state_of(torch.randn(2, 2, 4, 4, dtype=FLOAT64), parts, window=2)
    state.pending[:] = 1
    before = state.matrix.clone()
    gated_delta_rule(*parts, state, ragged([0]))
    assert torch.equal(state.matrix, before)


def test_more_held_rows_than_the_window_takes_are_refused():
    parts = inputs(3, (1, 2), (4, 4))
    state = state_of(torch.randn(2, 2, 4, 4, dtype=FLOAT64), parts, window=2)
    with pytest.raises(ValueError, match=r"rows.held is true for a sequence of 3 rows, .* most 2"):
        gated_delta_rule(*parts, state, replace(ragged([3]), held=torch.tensor([True])))


@pytest.mark.parametrize("oracle", [torch_recurrent_gated_delta_rule, torch_chunk_gated_delta_rule])
def test_transformers(oracle):
    q, k, v, g, beta = inputs(100, (4, 4), (32, 16), 0.5, torch.float32)
    state = torch.randn(2, 4, 16, 32)
    rows = ragged([100])
    slot = int(rows.state_slots[0])
    # Its state is [batch, heads, key, value]; its inputs are [batch, rows, heads, dim].
    want, last = oracle(
        *(x.unsqueeze(0) for x in (q, k, v)),
        g=g.unsqueeze(0),
        beta=beta.unsqueeze(0),
        initial_state=state[slot].transpose(1, 2).unsqueeze(0).contiguous(),
        output_final_state=True,
    )
    got = gated_delta_rule(q, k, v, g, beta, state_of(state, (q, k, v, g, beta)), rows)
    assert (got - want[0]).abs().max() < 2e-5
    assert (state[slot].transpose(1, 2) - last[0]).abs().max() < 2e-5


def test_gating_formula():
    a = torch.tensor([[-50.0, 0.3, 25.0]], dtype=FLOAT64)
    b = torch.tensor([[0.0, -2.0, 40.0]], dtype=FLOAT64)
    a_log, bias = torch.tensor([0.0, 1.0, -1.0]), torch.tensor([1.0, 0.5, 2.0])
    g, beta = gdn_gating(a, b, a_log, bias)
    soft = [math.log1p(math.exp(-49.0)), math.log1p(math.exp(0.8)), 27.0]
    want = [-math.exp(float(n)) * s for n, s in zip(a_log, soft, strict=True)]
    assert g[0].tolist() == pytest.approx(want, rel=1e-12)
    assert beta[0].tolist() == pytest.approx(
        [1 / (1 + math.exp(-u)) for u in (0, -2, 40)], rel=1e-12
    )


def test_gates_of_bf16_are_float32():
    a = torch.randn(3, 4).bfloat16()
    g, beta = gdn_gating(a, a, torch.randn(4), torch.randn(4))
    assert (g.dtype, beta.dtype) == (torch.float32, torch.float32)
    assert (g < 0).all()


def test_unit_strength_writes_the_value():
    key = functional.normalize(torch.randn(1, 1, 8, dtype=FLOAT64), dim=-1)
    value = torch.randn(1, 1, 4, dtype=FLOAT64)
    one = torch.ones(1, 1, dtype=FLOAT64)
    state = torch.randn(2, 1, 4, 8, dtype=FLOAT64)
    parts = (key, key, value, one * 0, one)
    out = gated_delta_rule(*parts, state_of(state, parts), ragged([1]))
    assert torch.allclose(out, value / math.sqrt(8), rtol=1e-13)
