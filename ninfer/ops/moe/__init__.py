"""Contract of the sparse mixture of experts: routing, and the routed and shared experts."""

from typing import Final

from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.dispatch import Route
from ninfer.ops.moe import reference
from ninfer.ops.tensors import ExpertWeights, SharedExpert, Weight

_ROUTE_TOPK: Final = Route(reference.route_topk)
_ROUTE_EXPERTS: Final = Route(reference.route_experts)
_SPARSE_MOE: Final = Route(reference.sparse_moe)


def route_topk(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """(weights, ids) of the top_k experts of each row, best first, lower id first on ties.

    Weights are the softmax over all experts, renormalised over those chosen, which equals the
    softmax over the chosen logits.
    Shapes: logits [T, E] -> weights [T, top_k] float32 (float64 for float64), ids [T, top_k]
    int64. Raises ValueError for a top_k outside 1..E.
    """
    checks.activation("route_topk", "logits", logits, 2)
    if not 1 <= top_k <= logits.shape[1]:
        raise checks.wrong("route_topk", "top_k", top_k, f"in 1..{logits.shape[1]}")
    return _ROUTE_TOPK.run(logits, top_k)


def route_experts(x: Tensor, router: Weight, top_k: int) -> tuple[Tensor, Tensor, Tensor]:
    """(weights, ids, score): `route_topk` of x @ router^T without its last column, which is score.

    The products stay in float32: rounded logits would tie, and a tie decides which experts run.
    Shapes: x [T, D], router [E + 1, D] -> weights [T, top_k] float32 (float64 for float64), ids
    [T, top_k] int64, score [T, 1] of the type of weights, the shared expert's.
    Raises ValueError for shapes that disagree and a top_k outside 1..E.
    """
    checks.activation("route_experts", "x", x, 2)
    checks.weight_matrix("route_experts", "router", router, x, columns=x.shape[1])
    if not 1 <= top_k < router.shape[0]:
        raise checks.wrong("route_experts", "top_k", top_k, f"in 1..{router.shape[0] - 1}")
    return _ROUTE_EXPERTS.run(x, router, top_k)


def sparse_moe(
    x: Tensor,
    weights: Tensor,
    ids: Tensor,
    experts: ExpertWeights,
    shared: SharedExpert,
    shared_score: Tensor,
) -> Tensor:
    """sum_r weights[r] * expert_ids[r](x) + sigmoid(shared_score) * shared(x), for each row.

    expert(x) = down(silu(gate(x)) * up(x)). The sum runs in float32 in rank order, the shared
    expert last, with one rounding at the end; a row's order does not depend on the other rows.
    Shapes: x [T, D], weights and ids [T, k] int64, shared_score [T, 1] -> [T, D] in the type of
    x. Domain: 0 <= ids < experts.count, no id twice in a row.
    Raises ValueError for shapes that disagree.
    """
    op = "sparse_moe"
    checks.activation(op, "x", x, 2)
    count, dim = x.shape
    checks.indices(op, "ids", ids, (count, ids.shape[-1]), x)
    checks.shaped(op, "weights", weights, ids.shape, x)
    checks.shaped(op, "shared_score", shared_score, (count, 1), x)
    if not weights.dtype.is_floating_point or not shared_score.dtype.is_floating_point:
        seen = f"{weights.dtype}, {shared_score.dtype}"
        raise checks.wrong(op, "weights, shared_score", seen, "float tensors")
    inner = experts.down.shape[-1]
    rows = (experts.count * 2 * inner, experts.count * dim)
    checks.weight_matrix(op, "experts.gate_up", experts.gate_up, x, rows=rows[0], columns=dim)
    checks.weight_matrix(op, "experts.down", experts.down, x, rows=rows[1], columns=inner)
    inner = shared.down.shape[-1]
    checks.weight_matrix(op, "shared.gate_up", shared.gate_up, x, rows=2 * inner, columns=dim)
    checks.weight_matrix(op, "shared.down", shared.down, x, rows=dim, columns=inner)
    return _SPARSE_MOE.run(x, weights, ids, experts, shared, shared_score)
