"""Sizes of the CUDA draw: a row fits its cluster, fields hold their sums, kernels compile."""

import pytest
import torch

from ninfer.errors import UnsupportedError
from ninfer.ops.linear.compiler import compile_program
from ninfer.ops.linear.fast_plan import shared_limit
from ninfer.ops.sampling import fast
from ninfer.ops.sampling.fast_plan import ARCHITECTURES, MOST_IDS, draw_plan


@pytest.mark.parametrize("limit", [1, 31, 1000, 248_077, MOST_IDS])
@pytest.mark.parametrize("rows", [1, 4, 5, 64])
def test_rows_fit_the_shared_memory_of_a_cluster(rows: int, limit: int):
    for dtype in (0, 1, 2):
        plan = draw_plan(rows, limit, dtype)
        assert all(plan.shared_bytes <= shared_limit(number) for number in ARCHITECTURES)
        assert plan.cluster * plan.chunk >= limit
        # 17 bits of a weight from each id of a block.
        assert plan.chunk << 17 <= 1 << 32
        assert plan.listed % plan.threads == 0 and 2048 % plan.threads == 0


def test_what_it_does_not_serve_is_refused():
    logits = torch.randn(2, 50)
    assert not fast.serves(logits, 50)
    one = torch.ones(2)
    named = {"temperature": one, "top_p": one, "min_p": one, "u": one / 2, "top_k": one.long()}
    with pytest.raises(UnsupportedError, match=r"sample: the CUDA form takes .* got 50 of .* cpu"):
        fast.sample(logits, limit=50, **named)


@pytest.mark.e2e
@pytest.mark.parametrize("rows", [1, 8])
def test_the_kernel_compiles(rows: int):
    for dtype in (0, 1, 2):
        plan = draw_plan(rows, 248_077, dtype)
        assert compile_program(fast.program(90, plan))[:4] == b"\x7fELF"
