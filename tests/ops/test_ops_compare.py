"""The comparison finds each kind of fault, and the criteria draw their lines where they say."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ninfer.ops import dispatch
from ninfer.ops.case import Case
from ninfer.ops.cases import ALL_CASES
from ninfer.ops.compare import compare
from ninfer.ops.conv import reference as conv
from ninfer.ops.kv_cache import reference as kv_cache
from ninfer.ops.norm import reference as norm
from ninfer.ops.tolerance import BF16, FLOAT32, criterion, in_row_sizes


@pytest.fixture
def faulty() -> Iterator[Callable[[Callable[..., object], str], None]]:
    """Registers a function as the "faulty" form of an op."""

    def form(function: Callable[..., object], name: str) -> None:
        function.__name__ = name
        dispatch.register("faulty", function)

    yield form
    dispatch._forms.pop("faulty", None)


def case(op: str, name: str) -> Case:
    return next(c for c in ALL_CASES if (c.op.__name__, c.name) == (op, name))


def problems(op: str, name: str) -> str:
    with dispatch.using("faulty", only=[op]):
        return "; ".join(compare(case(op, name), torch.float32))


def test_right_form_passes(faulty):
    faulty(lambda *a, **k: norm.rmsnorm(*a, **k), "rmsnorm")
    assert problems("rmsnorm", "odd_offset_True") == ""


def test_wrong_values_are_found(faulty):
    faulty(lambda *a, **k: norm.rmsnorm(*a, **k) * 1.001, "rmsnorm")
    assert "rmsnorm-odd_offset_True: result: error norm" in problems("rmsnorm", "odd_offset_True")


def test_nan_is_found(faulty):
    def poison(*args, **settings):
        out = norm.rmsnorm(*args, **settings)
        out[0, 0] = torch.nan
        return out

    faulty(poison, "rmsnorm")
    assert "1 of 231 values are not finite" in problems("rmsnorm", "odd_offset_True")


def test_a_result_of_another_type_is_found(faulty):
    """A kernel that widens its result is right in value and breaks its contract."""
    faulty(lambda *a, **k: norm.rmsnorm(*a, **k).float(), "rmsnorm")
    with dispatch.using("faulty", only=["rmsnorm"]):
        found = compare(case("rmsnorm", "odd_offset_True"), torch.bfloat16)
    assert "rmsnorm-odd_offset_True: result: is torch.float32, not torch.bfloat16" in found


def test_wrong_shape_is_found(faulty):
    faulty(lambda *a, **k: norm.rmsnorm(*a, **k)[:-1], "rmsnorm")
    assert "has shape (6, 33), not (7, 33)" in problems("rmsnorm", "odd_offset_True")


def test_missing_result_is_found(faulty):
    faulty(lambda *a, **k: norm.add_rmsnorm(*a, **k)[0], "add_rmsnorm")
    assert "gives ['result'], not ['result[0]', 'result[1]']" in problems("add_rmsnorm", "odd")


def test_changed_input_is_found(faulty):
    def greedy(x, weight, **settings):
        out = norm.rmsnorm(x, weight, **settings)
        weight += 1
        return out

    faulty(greedy, "rmsnorm")
    assert problems("rmsnorm", "odd_offset_True") == (
        "rmsnorm-odd_offset_True: weight: not as it must be"
    )


def test_forgotten_state_is_found(faulty):
    def forgetful(x, weight, state, rows):
        lost = replace(state, inputs=state.inputs.clone())
        return conv.causal_conv_silu(x, weight, lost, rows)

    faulty(forgetful, "causal_conv_silu")
    assert "state.inputs: error norm" in problems("causal_conv_silu", "decode")


def test_stray_state_write_is_found(faulty):
    def stray(x, weight, state, rows):
        out = conv.causal_conv_silu(x, weight, state, rows)
        other = set(range(state.inputs.shape[0])) - set(rows.state_slots.tolist())
        state.inputs[other.pop(), 0, 0] += 1e-7
        return out

    faulty(stray, "causal_conv_silu")
    assert "a slot that the op does not own" in problems("causal_conv_silu", "decode")


def test_held_rows_that_are_lost_or_committed_are_found(faulty):
    def lost(x, weight, state, rows):
        return conv.causal_conv_silu(x, weight, replace(state, window=state.window.clone()), rows)

    def committed(x, weight, state, rows):
        return conv.causal_conv_silu(x, weight, state, replace(rows, held=None))

    faulty(lost, "causal_conv_silu")
    assert "state.window: error norm" in problems("causal_conv_silu", "held")
    faulty(committed, "causal_conv_silu")
    assert "state.inputs: a slot that" in problems("causal_conv_silu", "held_and_not")


def test_pending_rows_that_are_forgotten_or_cleared_are_found(faulty):
    def forgotten(x, weight, state, rows):
        return conv.causal_conv_silu(x, weight, replace(state, pending=state.pending * 0), rows)

    def cleared(x, weight, state, rows):
        out = conv.causal_conv_silu(x, weight, state, rows)
        state.pending[rows.state_slots] = 0
        return out

    faulty(forgotten, "causal_conv_silu")
    assert "result: error norm" in problems("causal_conv_silu", "held")
    faulty(cleared, "causal_conv_silu")
    assert "state.pending: a slot that" in problems("causal_conv_silu", "held")


def test_wrong_cache_word_is_found(faulty):
    def off_by_one(keys, values, cache, slots):
        kv_cache.write_kv(keys, values, cache, slots)
        cache.keys[0, 0, 0, 0] += 1

    faulty(off_by_one, "write_kv")
    assert "cache.keys: not as it must be" in problems("write_kv", "int8_1x4x256")


def test_wrong_token_is_found(faulty):
    faulty(lambda logits, limit: logits[:, :limit].argmin(-1), "argmax")
    assert "argmax-rows_below_9: result: is not equal" in problems("argmax", "rows_below_9")


@pytest.mark.parametrize("rule", [BF16, FLOAT32], ids=lambda rule: rule.name)
def test_norm_bound(rule):
    want = torch.ones(100)
    assert rule.violation(want * (1 + 0.9 * rule.norm), want) is None
    assert "error norm" in str(rule.violation(want * (1 + 1.1 * rule.norm), want))


@pytest.mark.parametrize("rule", [BF16, FLOAT32], ids=lambda rule: rule.name)
def test_worst_element_bound(rule):
    want = torch.ones(100_000, dtype=torch.float64)
    got = want.clone()
    got[5] += 0.9 * rule.worst
    assert rule.violation(got, want) is None
    got[5] += 0.4 * rule.worst
    assert "worst element" in str(rule.violation(got, want))


def test_many_elements_have_a_larger_worst_one():
    torch.manual_seed(0)
    want = torch.randn(1_000_000, dtype=torch.float64)
    got = want + 0.9 * BF16.norm * torch.randn(1_000_000, dtype=torch.float64)
    assert ((got - want).abs() > BF16.worst * want.abs().clamp_min(1)).any()
    assert BF16.violation(got, want) is None


def test_zero_reference_allows_no_error():
    assert FLOAT32.violation(torch.zeros(3), torch.zeros(3)) is None
    assert FLOAT32.violation(torch.full((3,), 1e-30), torch.zeros(3)) is not None


def test_infinite_reference_must_be_matched():
    want = torch.tensor([1.0, -torch.inf])
    assert FLOAT32.violation(want.clone(), want) is None
    assert FLOAT32.violation(torch.tensor([1.0, -3e38]), want) is not None
    assert FLOAT32.violation(torch.tensor([torch.inf, -torch.inf]), want) is not None


def test_integers_have_no_criterion():
    with pytest.raises(ValueError, match="int64"):
        criterion(torch.int64)


def test_cases_repeat_for_a_seed_and_differ_between_seeds():
    def x(seed: int) -> Tensor:
        return case("l2norm", "odd").make(torch.float32, seed=seed).arguments["x"]

    assert torch.equal(x(3), x(3))
    assert not torch.equal(x(3), x(4))


def test_wrong_change_of_an_undeclared_state_is_found():
    undeclared = case("causal_conv_silu", "decode")
    build = undeclared.build
    frozen = replace(undeclared, build=lambda inputs: replace(build(inputs), changed=()))
    assert compare(frozen, torch.float32) == [
        "causal_conv_silu-decode: state.inputs: not as it must be"
    ]


def test_rows_are_judged_by_their_own_size():
    """A small row beside a large one: its faults count, and roundings of the large one do not."""
    rows = torch.randn(2, 64, 256, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rows[1] /= 1000
    rounded = rows.bfloat16()
    assert BF16.violation(*in_row_sizes(rounded, rows)) is None
    off = rounded.clone()
    off[1, 5] *= 1.5
    assert BF16.violation(off, rows) is None
    assert BF16.violation(*in_row_sizes(off, rows)) is not None


def test_rows_without_a_size_are_compared_as_they_are():
    rows = torch.tensor([[0.0, 0.0], [torch.inf, 1.0], [torch.nan, 2.0]])
    got, want = in_row_sizes(rows, rows)
    assert got.nan_to_num(7).equal(want.nan_to_num(7))
    assert got.nan_to_num(7).equal(rows.double().nan_to_num(7))
