"""The CUDA form of the experts: routing in one launch, both passes and the sum in two.

Up to 64 tokens in bfloat16 on sm_90 and sm_100; weights in fragment order with whole rows as
slices, as the portable tier keeps them. The three launches are programmatic dependent ones: a
kernel requests weights that it knows it needs while the one before still runs. Calls can be
captured into CUDA graphs once `ready` has run.

Calls on one device share the counters of unfinished sums: they must not overlap on two streams.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from ninfer.errors import UnsupportedError
from ninfer.ops.linear.compiler import Program
from ninfer.ops.linear.fast import counters
from ninfer.ops.linear.fragment_order import FragmentMatrix
from ninfer.ops.linear.launcher import Kernel, Launch, architecture, kernel, start
from ninfer.ops.moe.fast_plan import (
    ARCHITECTURES,
    FEW,
    MOST,
    MOST_EXPERTS,
    MOST_TOP_K,
    DownPlan,
    GateUpPlan,
    Layer,
    RouterPlan,
    down_plan,
    gate_up_plan,
    router_plan,
    serves_layer,
)
from ninfer.ops.tensors import ExpertWeights, SharedExpert, Weight

Plan = RouterPlan | GateUpPlan | DownPlan
_SOURCES: Final = {
    RouterPlan: ("moe/router.cu", "moe_router"),
    GateUpPlan: ("moe/gate_up.cu", "moe_gate_up"),
    DownPlan: ("moe/down.cu", "moe_down"),
}
_COLUMNS: Final = 8
_TILE: Final = 16
_UNIT: Final = 8  # bfloat16 numbers that are read at once


def route_experts(x: Tensor, router: Weight, top_k: int) -> tuple[Tensor, Tensor, Tensor]:
    """See the contract. Raises UnsupportedError for what `serves_router` does not take."""
    if not serves_router(x, router, top_k):
        raise UnsupportedError(
            f"route_experts: the CUDA form takes up to {MOST} aligned bfloat16 rows on a card of "
            f"sm_90 or sm_100 and a bfloat16 router, got {x.dtype} {list(x.shape)} on {x.device}"
        )
    assert isinstance(router, Tensor)
    count, (rows, columns) = x.shape[0], router.shape
    logits = torch.empty((count, rows), dtype=torch.float32, device=x.device)
    weights = torch.empty((count, top_k), dtype=torch.float32, device=x.device)
    ids = torch.empty((count, top_k), dtype=torch.int64, device=x.device)
    score = torch.empty((count, 1), dtype=torch.float32, device=x.device)
    if not count:
        return weights, ids, score
    device = _index(x)
    plan = router_plan(columns, rows - 1)
    blocks = -(-rows // _TILE) * -(-count // _COLUMNS)
    tensors = (router, x, logits, counters(device), weights, ids, score)
    sizes = (x.stride(0), count, rows, columns, top_k)
    _start(device, plan, blocks, tensors, sizes)
    return weights, ids, score


def sparse_moe(
    x: Tensor,
    weights: Tensor,
    ids: Tensor,
    experts: ExpertWeights,
    shared: SharedExpert,
    shared_score: Tensor,
    plans: tuple[GateUpPlan, DownPlan] | None = None,
) -> Tensor:
    """See the contract. `plans` replace the sizes, for measurements of others.

    Raises UnsupportedError for what `serves` does not take.
    """
    layer = layer_of(ids.shape[1], experts, shared)
    if layer is None or not serves(x, layer):
        raise UnsupportedError(
            f"sparse_moe: the CUDA form takes at most {MOST} aligned bf16 rows on a card of sm_90 "
            "or sm_100 and experts in fragment order with whole rows as slices, got "
            f"{x.dtype} {list(x.shape)} on {x.device}"
        )
    count, dim = x.shape
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not count:
        return out
    device = _index(x)
    first, second = plans or _plans(device, layer, count)
    act = x.new_empty(count * layer.top_k, layer.inner)
    shared_act = x.new_empty(count, layer.shared_inner)
    chosen = ids.contiguous()
    blocks = torch.cuda.get_device_properties(device).multi_processor_count
    _start(
        device,
        first,
        blocks,
        (_words(experts.gate_up), _words(shared.gate_up), x, chosen, act, shared_act),
        (x.stride(0), count, layer.top_k, *_widths(layer), first.shared_blocks, blocks),
    )
    blocks = min(blocks, dim // _TILE)
    factors = (weights.float().contiguous(), shared_score.float().contiguous())
    _start(
        device,
        second,
        blocks,
        (_words(experts.down), _words(shared.down), act, shared_act, chosen, *factors, out),
        (count, layer.top_k, dim, blocks),
    )
    return out


def layer_of(top_k: int, experts: ExpertWeights, shared: SharedExpert) -> Layer | None:
    """The sizes of a layer; None for weights that are not in the form the kernels read."""
    found = (experts.gate_up, shared.gate_up, experts.down, shared.down)
    bits = []
    for weight in found:
        if not isinstance(weight, FragmentMatrix) or weight.paired or weight.slices != 1:
            return None
        bits.append(weight.entry.bits)
    dim, inner = experts.gate_up.shape[1], experts.down.shape[1]
    wide = (bits[0], bits[1]), (bits[2], bits[3])
    return Layer(experts.count, top_k, dim, inner, shared.down.shape[1], *wide)


def serves(x: Tensor, layer: Layer) -> bool:
    """Whether this form computes experts of that layer for rows x: else another tier has to."""
    return _takes(x) and serves_layer(layer)


def serves_router(x: Tensor, router: Weight, top_k: int) -> bool:
    """Whether this form routes rows x."""
    return (
        _takes(x)
        and isinstance(router, Tensor)
        and router.dtype is torch.bfloat16
        and router.is_contiguous()
        and top_k <= MOST_TOP_K
        and router.shape[0] - 1 <= MOST_EXPERTS
    )


def ready(
    device: torch.device, layer: Layer, tokens: Sequence[int] = (1, FEW, FEW + 1, MOST)
) -> None:
    """Build and load what calls of these token counts need.

    After this a call compiles, loads and waits for nothing. Raises UnsupportedError when a kernel
    can be neither found nor compiled.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    counters(index)
    for count in tokens:
        for plan in (router_plan(layer.dim, layer.experts), *_plans(index, layer, count)):
            _kernel(index, plan)
    # A first launch requests weights before the kernel that wrote them has to be over.
    torch.cuda.synchronize(index)


def program(number: int, plan: Plan) -> Program:
    """What a launch with these sizes starts on an architecture."""
    return Program.of(_SOURCES[type(plan)][0], number, plan.defines)


def _plans(device: int, layer: Layer, count: int) -> tuple[GateUpPlan, DownPlan]:
    number = architecture(device)
    blocks = torch.cuda.get_device_properties(device).multi_processor_count
    return gate_up_plan(layer, count, blocks), down_plan(number, layer, count)


def _start(
    device: int, plan: Plan, blocks: int, tensors: Sequence[Tensor], sizes: Sequence[int]
) -> None:
    how = Launch(blocks, plan.threads, plan.shared_bytes)
    start(_kernel(device, plan), how, [tensor.data_ptr() for tensor in tensors], sizes)


def _kernel(device: int, plan: Plan) -> Kernel:
    source, name = _SOURCES[type(plan)]
    return kernel(device, source, name, tuple(sorted(plan.defines.items())))


def _takes(x: Tensor) -> bool:
    """Rows that are read in units of 16 bytes, on a card that copies in bulk."""
    if x.device.type != "cuda" or x.dtype is not torch.bfloat16 or x.shape[0] > MOST:
        return False
    is_aligned = x.data_ptr() % 16 == 0 and x.stride(0) % _UNIT == 0 and x.shape[1] % _UNIT == 0
    is_dense = x.stride(1) == 1 or x.shape[1] == 1
    return is_aligned and is_dense and architecture(_index(x)) // 10 * 10 in ARCHITECTURES


def _widths(layer: Layer) -> tuple[int, int]:
    return layer.inner, layer.shared_inner


def _words(weight: Weight) -> Tensor:
    assert isinstance(weight, FragmentMatrix)
    return weight.words


def _index(x: Tensor) -> int:
    return torch.cuda.current_device() if x.device.index is None else x.device.index
