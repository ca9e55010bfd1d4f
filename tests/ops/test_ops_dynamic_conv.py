"""Dynamic convolution against loops over rows, taps and channels."""

import pytest
import torch
from torch import Tensor

from ninfer.ops import RaggedRows, dynamic_conv
from ninfer.ops.case import Inputs


def ragged(new: list[int]) -> RaggedRows:
    return Inputs(torch.float32, torch.device("cpu"), seed=1).ragged(new)


def loops(x: Tensor, base: Tensor, delta: Tensor, new: list[int]) -> Tensor:
    out, width = torch.zeros_like(x), x.shape[1] // delta.shape[2]
    start = 0
    for count in new:
        for t in range(count):
            for c in range(x.shape[1]):
                for j in range(min(base.shape[0], t + 1)):
                    tap = float(base[j, c]) + float(delta[start + t, j, c // width])
                    out[start + t, c] += tap * float(x[start + t - j, c])
        start += count
    return out


@pytest.mark.parametrize(("taps", "groups"), [(1, 1), (2, 3), (2, 12), (4, 2)])
def test_loops(taps: int, groups: int):
    new = [5, 0, 1, 3]
    x, base = torch.randn(9, 12).double(), torch.randn(taps, 12).double()
    delta = torch.randn(9, taps, groups).double()
    got = dynamic_conv(x, base, delta, ragged(new))
    assert (got - loops(x, base, delta, new)).abs().max() < 1e-14


def test_a_sequence_does_not_see_the_one_before():
    x, base, delta = torch.randn(6, 8), torch.randn(2, 8), torch.randn(6, 2, 4)
    together = dynamic_conv(x, base, delta, ragged([2, 4]))
    alone = dynamic_conv(x[2:], base, delta[2:], ragged([4]))
    assert torch.equal(together[2:], alone)


def test_the_row_itself_meets_tap_0_and_its_deltas_are_its_own():
    base = torch.tensor([[2.0], [10.0]])
    x = torch.tensor([[1.0], [3.0]])
    delta = torch.tensor([[[0.5], [7.0]], [[-1.0], [0.25]]])
    got = dynamic_conv(x, base, delta, ragged([2]))
    assert got.flatten().tolist() == [2.5, 1 * 3 + 10.25]


def test_wrong_arguments_are_named():
    x, base, rows = torch.randn(3, 8), torch.randn(2, 8), ragged([3])
    with pytest.raises(ValueError, match="dynamic_conv: delta is of 3 groups"):
        dynamic_conv(x, base, torch.randn(3, 2, 3), rows)
    with pytest.raises(ValueError, match="dynamic_conv: delta is of shape"):
        dynamic_conv(x, base, torch.randn(3, 1, 4), rows)
    with pytest.raises(ValueError, match="dynamic_conv: base is of shape"):
        dynamic_conv(x, base[:, :4], torch.randn(3, 2, 4), rows)
