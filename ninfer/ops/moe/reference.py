"""Mixture of experts in plain torch: a loop over the experts that some row chose."""

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.ops.exact import pointwise, product
from ninfer.ops.precision import wide
from ninfer.ops.tensors import ExpertWeights, SharedExpert, Weight
from ninfer.ops.weights import decode_rows


def route_topk(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """See the contract."""
    # A stable sort keeps equal logits in id order; topk promises no order.
    ranked = torch.sort(logits.to(wide(logits)), dim=-1, descending=True, stable=True)
    return ranked.values[:, :top_k].softmax(-1), ranked.indices[:, :top_k].contiguous()


def route_experts(x: Tensor, router: Weight, top_k: int) -> tuple[Tensor, Tensor, Tensor]:
    """See the contract."""
    dtype = wide(x)
    scores = product(x.to(dtype), decode_rows(router, 0, router.shape[0], dtype))
    weights, ids = route_topk(scores[:, :-1], top_k)
    return weights, ids, scores[:, -1:].contiguous()


def sparse_moe(
    x: Tensor,
    weights: Tensor,
    ids: Tensor,
    experts: ExpertWeights,
    shared: SharedExpert,
    shared_score: Tensor,
) -> Tensor:
    """See the contract."""
    dtype = wide(x)
    left = x.to(dtype)
    routed = left.new_empty(*ids.shape, x.shape[1])  # [T, k, D]
    chosen: list[int] = ids.flatten().tolist()
    for expert in sorted(set(chosen)):
        row, rank = (ids == expert).nonzero(as_tuple=True)
        routed[row, rank] = _expert(left[row], experts.gate_up, experts.down, expert)
    factors = weights.to(dtype).unsqueeze(2)
    total = torch.zeros_like(left)
    for k in range(ids.shape[1]):
        total.addcmul_(factors[:, k], routed[:, k])
    gate = pointwise(torch.sigmoid, shared_score.to(dtype))
    total.addcmul_(gate, _expert(left, shared.gate_up, shared.down, 0))
    return total.to(x.dtype)


def _expert(x: Tensor, gate_up: Weight, down: Weight, index: int) -> Tensor:
    """SwiGLU by expert `index` of matrices that hold experts one after another."""
    dim, inner = x.shape[1], down.shape[1]
    rows = decode_rows(gate_up, index * 2 * inner, (index + 1) * 2 * inner, x.dtype)
    gate, up = product(x, rows).chunk(2, dim=-1)
    rows = decode_rows(down, index * dim, (index + 1) * dim, x.dtype)
    return product(pointwise(functional.silu, gate).mul_(up), rows)
