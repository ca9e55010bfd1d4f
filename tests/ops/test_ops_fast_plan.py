"""Sizes of the CUDA kernels: they fit the card, cover the columns, and leave the sums alone."""

import pytest

from ninfer.ops.linear.fast_plan import (
    ARCHITECTURES,
    Split,
    fitted,
    shared_limit,
    split_of,
    stream_plan,
)
from ninfer.ops.linear.fragment_order import groups_of
from ninfer.ops.linear.wide_plan import WarpgroupPlan, many_plan

WIDTHS = (64, 90, 512, 1152, 2048, 4096, 4304, 5120, 6144, 10240, 17408, 65536)


@pytest.mark.parametrize("bits", [4, 5, 6, 8])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("columns", WIDTHS)
def test_splits_cover_the_columns_with_no_empty_slice(architecture, columns, bits):
    split = split_of(architecture, bits, columns)
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
        assert plan.split == split_of(architecture, bits, columns)
        registers = plan.multiplier_registers
        if registers:
            # What is moved was there, and only whole warpgroups move it.
            launched = 65536 // plan.threads // 8 * 8
            assert architecture == 90 and registers % 8 == 0 and 24 <= registers <= 256
            assert plan.split.warps % 4 == 0 and plan.reducers == 4
            assert plan.split.warps * registers + 4 * 40 <= (plan.split.warps + 4) * launched
    groups = plan.split.slice_groups
    for tokens in (17, 32, 33, 64):
        wide = many_plan(architecture, bits, groups, tokens)
        assert wide.shared_bytes <= limit
        assert wide.token_tiles * 8 >= tokens
        assert isinstance(wide, WarpgroupPlan) == (architecture == 90)


@pytest.mark.parametrize("bits", [4, 5, 6, 8])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("slice_groups", [32, 34, 40, 48, 17, 5])
def test_where_sums_of_many_tokens_are_cut_does_not_depend_on_their_number(
    architecture, bits, slice_groups
):
    few = many_plan(architecture, bits, slice_groups, 17)
    many = many_plan(architecture, bits, slice_groups, 64)
    assert few.block_tiles == many.block_tiles
    if isinstance(few, WarpgroupPlan) and isinstance(many, WarpgroupPlan):
        assert few.stage_groups == many.stage_groups and slice_groups % few.stage_groups == 0


def test_the_measured_splits_of_the_27b_are_used():
    assert split_of(90, 4, 5120) == split_of(90, 5, 5120) == Split(20, 2, 2)
    assert split_of(90, 5, 6144) == Split(12, 4, 2) and split_of(90, 4, 6144) == Split(16, 3, 2)
    plan = stream_plan(90, 4, 5120, 16)
    assert plan.shared_bytes == 4 * 40 * 544 + 4 * 20 * 1024 + 128
    assert plan.multiplier_registers == stream_plan(90, 5, 5120, 16).multiplier_registers == 88


def test_slices_meet_in_a_cluster_where_it_may_have_so_many_blocks():
    assert stream_plan(90, 5, 17408, 1).clusters
    assert not fitted(90, 5, Split(17, 2, 9), 1).clusters


def test_small_cards_take_fewer_stages_or_reducers_not_another_split():
    few = fitted(86, 8, Split(10, 2, 4), 2)
    many = fitted(90, 8, Split(10, 2, 4), 2)
    assert few.split == many.split
    assert few.shared_bytes <= 99 * 1024 < many.shared_bytes
