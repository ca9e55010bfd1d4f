"""Sizes of the experts' CUDA kernels: they fit the card, hold every list, and leave sums alone."""

from dataclasses import replace

import pytest
import torch

from ninfer.errors import UnsupportedError
from ninfer.formats import quantise
from ninfer.ops.linear.compiler import compile_program
from ninfer.ops.linear.fast_plan import shared_limit
from ninfer.ops.linear.fragment_order import groups_of, to_fragments
from ninfer.ops.moe import fast
from ninfer.ops.moe.fast_plan import (
    Layer,
    Lists,
    down_plan,
    gate_up_plan,
    router_plan,
    serves_layer,
    shared_blocks,
    split_of,
)
from ninfer.ops.tensors import ExpertWeights, SharedExpert

DECODER = Layer(256, 8, 2048, 512, 512, (4, 8), (5, 8))
LAYERS = {
    "decoder": DECODER,
    "last": replace(DECODER, down_bits=(6, 8)),
    "mtp": replace(DECODER, gate_up_bits=(8, 8), down_bits=(8, 8)),
}
TOKENS = (1, 2, 8, 9, 16, 17, 64)


@pytest.mark.parametrize("architecture", [90, 100])
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_plans_fit_the_card(layer: Layer, architecture: int):
    assert serves_layer(layer)
    for tokens in TOKENS:
        first, second = gate_up_plan(layer, tokens, 132), down_plan(architecture, layer, tokens)
        for plan in (first, second, router_plan(layer.dim, layer.experts)):
            assert plan.shared_bytes <= shared_limit(architecture)
            assert plan.threads <= 1024
        assert 0 < first.shared_blocks < 132
        assert second.tokens >= tokens


def test_one_token_leaves_room_for_both_passes_on_a_multiprocessor():
    first, second = gate_up_plan(DECODER, 1, 132), down_plan(90, DECODER, 1)
    # Each block takes a KiB more than it asks for.
    assert first.shared_bytes + second.shared_bytes + 2048 <= 228 * 1024
    assert second.least_blocks == 2


def test_the_order_of_sums_is_a_matter_of_the_width():
    splits = {gate_up_plan(layer, t, 132).split for layer in LAYERS.values() for t in TOKENS}
    assert splits == {split_of(2048)} == {(8, 4)}
    assert split_of(2050) is None and split_of(64 * 67) is None
    assert split_of(64) == (1, 1) and split_of(320) == (5, 1)


@pytest.mark.parametrize(("top_k", "experts"), [(8, 256), (3, 10), (1, 4), (2, 2)])
def test_lists_hold_the_worst_choice(top_k: int, experts: int):
    for tokens in TOKENS:
        lists = Lists.of(tokens, top_k, experts)
        pairs = tokens * top_k
        assert lists.pairs >= pairs and lists.pairs % 16 == 0 and lists.experts % 32 == 0
        # As many experts as possible, and all others' pairs on one of them.
        distinct = min(experts, pairs)
        most = distinct if lists.few else distinct - 1 + -(-(pairs - distinct + 1) // 8)
        assert lists.items >= most


def test_the_shared_expert_gets_its_part_of_the_blocks():
    assert shared_blocks(DECODER, 1, 132) == 32
    assert shared_blocks(DECODER, 4, 132) == 8
    assert 1 <= shared_blocks(DECODER, 64, 132) <= 20


def test_what_the_kernels_are_not_made_for_is_not_served():
    wrong = ({"inner": 96}, {"inner": 1024}, {"dim": 2000}, {"experts": 2048}, {"top_k": 33})
    assert not any(serves_layer(replace(DECODER, **change)) for change in wrong)

    def held(paired: bool, cut: int = 1) -> Layer | None:
        first, second = (quantise(torch.randn(256, n), "Q4G64_F16S") for n in (128, 64))
        gate_up = to_fragments(first, groups_of(128) // cut, paired=paired)
        down = to_fragments(second, 1)
        return fast.layer_of(1, ExpertWeights(gate_up, down, 2), SharedExpert(gate_up, down))

    assert held(False) == Layer(2, 1, 128, 64, 64, (4, 4), (4, 4))
    assert held(True) is None and held(False, 2) is None
    x = torch.randn(2, 128).bfloat16()
    with pytest.raises(UnsupportedError, match=r"on a card of sm_90 or sm_100 .*\[2, 128\] on cpu"):
        fast.route_experts(x, x, 1)


@pytest.mark.e2e
@pytest.mark.timeout(600)
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_every_kernel_compiles(layer: Layer):
    for tokens in (1, 8, 64):
        plans = (gate_up_plan(layer, tokens, 132), down_plan(90, layer, tokens))
        for plan in (*plans, router_plan(layer.dim, layer.experts)):
            assert compile_program(fast.program(90, plan))[:4] == b"\x7fELF"
