"""The mixture of experts by Triton kernels: two launches for the router, two for the experts.

Up to 64 tokens each distinct expert is read once, by programs that find their tokens themselves.
More tokens are sorted by expert first. Up to 16 tokens the last program of a block of rows also
adds the ranks up; beyond, a kernel of its own does, in the same order.
"""

from dataclasses import dataclass
from typing import Any, Final

import torch
import triton
from torch import Tensor

from ninfer.errors import UnsupportedError
from ninfer.ops.launch import INTERPRETED, architecture, launch
from ninfer.ops.linear.fragment_order import TILE, FragmentMatrix, groups_of
from ninfer.ops.linear.plan import BLOCK, FEW, Plan, plan
from ninfer.ops.linear.portable import (
    OPERANDS,
    form_name,
    operand_type,
    row_planes,
    split_sums,
)
from ninfer.ops.moe import kernels, route_kernels
from ninfer.ops.moe.spans import expert_spans
from ninfer.ops.tensors import ExpertWeights, SharedExpert, Weight
from ninfer.ops.tuning import Shape

# Most splits of the router's columns, and their least width: a router is small, its rows are few.
_ROUTER_SPLITS: Final = 16
_ROUTER_BLOCKS: Final = 2
# With at most so many tokens the second pass adds up the ranks itself.
_SUMS: Final = 16
_SUM_BLOCK: Final = 512
_PARTS: Final = 4


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Rows of half a program, tokens of a program, loads ahead."""

    half_rows: int
    tokens: int
    stages: int


_FEW: Final = _Sizes(16, 8, 4)
_MANY: Final = _Sizes(64, 64, 3)


def route_topk(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """See the contract."""
    if logits.dtype not in OPERANDS:
        raise UnsupportedError(
            f"route_topk: no Triton kernel for logits of {logits.dtype}; use float32"
        )
    weights, ids, _ = _chosen(logits.unsqueeze(0), logits.shape[1], top_k)
    return weights, ids


def route_experts(x: Tensor, router: Weight, top_k: int) -> tuple[Tensor, Tensor, Tensor]:
    """See the contract."""
    experts = router.shape[0] - 1
    if not x.shape[0]:
        sums = torch.empty((1, 0, experts + 1), dtype=torch.float32, device=x.device)
    else:
        sums = split_sums("route_experts", x, router, _router_plan(x, router))
    weights, ids, score = _chosen(sums, experts, top_k)
    assert score is not None
    return weights, ids, score


def _router_plan(x: Tensor, router: Weight) -> Plan:
    """That of the linear tier, but with more splits for few tokens."""
    many = x.shape[0] > FEW
    shape = Shape(form_name(router), router.shape[0], router.shape[1], many=many)
    found = plan(architecture(x), shape, x.shape[0])
    if many:
        return found
    blocks = -(-router.shape[1] // BLOCK)
    share = max(_ROUTER_BLOCKS, -(-blocks // _ROUTER_SPLITS))
    return Plan(16, found.tokens, -(-blocks // share), share, unroll=1, warps=1, stages=3)


def _chosen(sums: Tensor, experts: int, top_k: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Weights, ids and, where there is one column more, scores of sums [splits, T, columns]."""
    splits, count, columns = sums.shape
    weights = torch.empty((count, top_k), dtype=torch.float32, device=sums.device)
    ids = torch.empty((count, top_k), dtype=torch.int64, device=sums.device)
    is_scored = columns > experts
    score = weights.new_empty((count, 1)) if is_scored else None
    if count:
        width = triton.next_power_of_2(experts)
        values = (sums, weights, ids, score, experts, sums.stride(1), sums.stride(0))
        launch(
            route_kernels.choose_experts,
            (count,),
            *values,
            SPLITS=splits,
            TOP_K=top_k,
            KP=triton.next_power_of_2(top_k),
            EP=width,
            IS_SCORED=is_scored,
            num_warps=1 if width <= 512 else 4,
        )
    return weights, ids, score


def sparse_moe(
    x: Tensor,
    weights: Tensor,
    ids: Tensor,
    experts: ExpertWeights,
    shared: SharedExpert,
    shared_score: Tensor,
) -> Tensor:
    """See the contract."""
    operand = _operand(x, experts, shared)
    if not x.numel():
        return torch.empty_like(x)
    work = _work(x, ids.contiguous(), experts.count, operand)
    rows = (x.shape[0] * work.top_k, x.shape[0])
    widths = (experts.down.shape[1], shared.down.shape[1])
    act = tuple(
        torch.empty((height, width), dtype=work.dtype, device=x.device)
        for height, width in zip(rows, widths, strict=True)
    )
    counters = -(-x.shape[1] // (2 * work.sizes.half_rows))
    arrived = torch.empty(counters, dtype=torch.int32, device=x.device)
    _gate_up(work, (experts.gate_up, shared.gate_up), act, arrived)
    scores = (weights.contiguous(), shared_score.contiguous())
    return _down(work, (experts.down, shared.down), act, scores, arrived).to(x.dtype)


@dataclass(frozen=True, slots=True)
class _Work:
    """The rows of a call, which programs serve them, and what both passes are launched with."""

    x: Tensor
    ids: Tensor
    grouped: tuple[Tensor | None, Tensor | None]  # spans and order of many tokens
    sizes: _Sizes
    tiles: int  # of tokens, for the shared expert
    items: int  # for the routed experts
    dtype: torch.dtype  # of activations between the passes, and of the result
    options: dict[str, Any]

    @property
    def top_k(self) -> int:
        """Experts of a token."""
        return self.ids.shape[1]

    def options_for(self, weights: tuple["_Stored", "_Stored"]) -> dict[str, Any]:
        """Options of the pass that reads the weights of the routed and of the shared expert."""
        routed, shared = weights
        warps = 4 if self.sizes is _MANY else max(routed.parts, shared.parts)
        return self.options | {"ROUTED": routed.how, "SHARED": shared.how, "num_warps": warps}


def _work(x: Tensor, ids: Tensor, experts: int, operand: torch.dtype) -> _Work:
    count, top_k = ids.shape
    is_many, is_plain = count > FEW, operand is not torch.bfloat16
    sizes = _MANY if is_many else _FEW
    spans, order = expert_spans(ids, experts, sizes.tokens) if is_many else (None, None)
    held = 0 if is_many else _SUMS if count <= _SUMS else FEW
    stages = 1 if is_plain else sizes.stages
    return _Work(
        x=x,
        ids=ids,
        grouped=(spans, order),
        sizes=sizes,
        tiles=-(-count // sizes.tokens),
        items=ids.numel() if spans is None else spans.shape[1],
        # The interpreter cuts float32 down to bf16 where a card rounds.
        dtype=torch.float32 if INTERPRETED and x.dtype is torch.bfloat16 else x.dtype,
        options={
            "PAIRS": (top_k, triton.next_power_of_2(top_k), held),
            "SIZES": (sizes.half_rows, sizes.tokens, stages, is_plain, OPERANDS[operand]),
        },
    )


def _gate_up(
    work: _Work, weights: tuple[Weight, Weight], act: tuple[Tensor, ...], arrived: Tensor
) -> None:
    """Fill the rows `act` of the routed and the shared experts, and set the counters to zero."""
    routed, shared = (_stored(weight, work.sizes) for weight in weights)
    widths = tuple(rows.shape[1] for rows in act)
    launch(
        kernels.gate_up,
        (-(-max(widths) // work.sizes.half_rows), work.tiles + work.items),
        *(work.x, work.ids, *work.grouped, *act, arrived, routed.values, shared.values),
        *(*work.x.shape, *widths, work.x.stride(0), work.tiles, work.items, arrived.shape[0]),
        **work.options_for((routed, shared)),
    )


def _down(
    work: _Work,
    weights: tuple[Weight, Weight],
    act: tuple[Tensor, ...],
    scores: tuple[Tensor, Tensor],
    arrived: Tensor,
) -> Tensor:
    """The weighted sum of the down products."""
    routed, shared = (_stored(weight, work.sizes) for weight in weights)
    count, dim = work.x.shape
    device = work.x.device
    out = torch.empty((count, dim), dtype=work.dtype, device=device)
    partial = torch.empty((count, work.top_k + 1, dim), dtype=torch.float32, device=device)
    widths = tuple(rows.shape[1] for rows in act)
    launch(
        kernels.down,
        (arrived.shape[0], work.tiles + work.items),
        *(*act, work.ids, *work.grouped, *scores, partial, arrived, out),
        *(routed.values, shared.values, count, *widths, dim, work.tiles, work.items),
        SUMS=count <= _SUMS,
        **work.options_for((routed, shared)),
    )
    if count > _SUMS:
        launch(
            kernels.sum_ranks,
            (-(-dim // _SUM_BLOCK), count),
            *(partial, *scores, out, dim),
            TOP_K=work.top_k,
            BLOCK=_SUM_BLOCK,
            num_warps=4,
        )
    return out


@dataclass(frozen=True, slots=True)
class _Stored:
    """A weight as the kernels take it; see `kernels`."""

    values: tuple[Any, ...]
    how: tuple[int, int, int, bool]

    @property
    def parts(self) -> int:
        """Slices of the columns that warps take."""
        return self.how[2]


def _stored(weight: Weight, sizes: _Sizes) -> _Stored:
    columns = weight.shape[1]
    if not isinstance(weight, FragmentMatrix):
        stored, scales, divisor, form = row_planes(weight)
        values = (stored, scales, stored.stride(0), 0, 0, 0, divisor)
        return _Stored(values, (form, 0, 1, columns % BLOCK != 0))
    groups = groups_of(columns)
    parts = _parts(groups) if sizes is _FEW else 1
    units = weight.words.shape[2] // 16
    tile_units = weight.slices * units
    values = (weight.words.view(torch.int32), None, 0, groups, tile_units, units, 1.0)
    slice_groups = 0 if weight.slice_groups == groups else weight.slice_groups
    is_ragged = columns % BLOCK != 0 or groups % parts != 0
    return _Stored(values, (weight.entry.bits, slice_groups, parts, is_ragged))


def _parts(groups: int) -> int:
    """Warps that share a row's groups: two groups each at least. A matter of the shape alone."""
    parts = 1
    while parts < _PARTS and groups >= 4 * parts:
        parts *= 2
    return parts


def _operand(x: Tensor, experts: ExpertWeights, shared: SharedExpert) -> torch.dtype:
    """The type in which codes and activations meet; float32 when some weight asks for it."""
    op = "sparse_moe"
    weights = (experts.gate_up, experts.down, shared.gate_up, shared.down)
    for weight in weights:
        if isinstance(weight, FragmentMatrix) and weight.paired:
            raise UnsupportedError(
                f"{op}: {weight.format} experts have paired rows; re-tile them at load with "
                "ninfer.ops.resident(weight)"
            )
    for width in (x.shape[1], experts.down.shape[1], shared.down.shape[1]):
        if width % TILE and any(isinstance(weight, FragmentMatrix) for weight in weights):
            raise UnsupportedError(
                f"{op}: no Triton kernel for packed experts of width {width}; it must be a "
                f"multiple of {TILE}"
            )
    found = {operand_type(op, x, weight) for weight in weights}
    return found.pop() if len(found) == 1 else torch.float32
