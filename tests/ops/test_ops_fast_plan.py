"""Sizes of the CUDA kernels: they fit the card, cover the columns, and leave the sums alone."""

import pytest

from ninfer.ops.linear.fast_plan import (
    ARCHITECTURES,
    Split,
    fitted,
    shared_limit,
    split_of,
    stream_plan,
    wide_plan,
)
from ninfer.ops.linear.fragment_order import groups_of

WIDTHS = (64, 90, 512, 1152, 2048, 4096, 4304, 5120, 6144, 10240, 17408, 65536)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("columns", WIDTHS)
def test_splits_cover_the_columns_with_no_empty_slice(architecture, columns):
    split = split_of(architecture, columns)
    groups = groups_of(columns)
    assert (split.slices - 1) * split.slice_groups < groups <= split.slices * split.slice_groups
    # Padding is read like weights.
    assert split.slices * split.slice_groups <= max(1.07 * groups, groups + 1)


@pytest.mark.parametrize("bits", [4, 5, 6, 8])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("columns", WIDTHS)
def test_plans_fit_the_card(architecture, columns, bits):
    limit = shared_limit(architecture)
    for tokens in (1, 8, 9, 16):
        plan = stream_plan(architecture, bits, columns, tokens)
        assert plan.shared_bytes <= limit
        assert plan.threads <= 1024
        assert plan.token_tiles * 8 >= tokens
        assert 2 <= plan.stages <= 8 and 1 <= plan.reducers <= 4 and plan.ahead <= plan.stages
        assert plan.split == split_of(architecture, columns)
    for tokens in (17, 32, 33, 64):
        wide = wide_plan(architecture, bits, tokens)
        assert wide.shared_bytes <= limit
        assert wide.token_tiles * 8 >= tokens


def test_the_measured_split_of_the_27b_is_used():
    # 20 warps of 2 groups on 2 blocks serve 1 to 16 tokens of 5120 columns.
    assert split_of(90, 5120) == Split(20, 2, 2)
    plan = stream_plan(90, 4, 5120, 16)
    assert plan.shared_bytes == 4 * 40 * 544 + 4 * 20 * 1024 + 128


def test_small_cards_take_fewer_stages_or_reducers_not_another_split():
    few = fitted(86, 8, Split(10, 2, 4), 2)
    many = fitted(90, 8, Split(10, 2, 4), 2)
    assert few.split == many.split
    assert few.shared_bytes <= 99 * 1024 < many.shared_bytes
