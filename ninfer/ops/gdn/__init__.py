"""Contract of Gated DeltaNet: the gates and the gated delta rule with carried state."""

from typing import Final

from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.dispatch import Route
from ninfer.ops.gdn import reference
from ninfer.ops.precision import wide
from ninfer.ops.tensors import DeltaState, RaggedRows

_GDN_GATING: Final = Route(reference.gdn_gating)
_GATED_DELTA_RULE: Final = Route(reference.gated_delta_rule)


def gdn_gating(a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor) -> tuple[Tensor, Tensor]:
    """(g, beta) with g = -exp(a_log) * softplus(a + dt_bias) and beta = sigmoid(b).

    softplus(u) is u above 20. g is the logarithm of the decay, beta the write strength.
    Shapes: a and b [T, H] of one type, a_log and dt_bias [H] -> two [T, H] float32 (float64 for
    float64 a). Raises ValueError for shapes or types that disagree.
    """
    checks.activation("gdn_gating", "a", a, 2)
    checks.twin("gdn_gating", "b", b, a)
    checks.shaped("gdn_gating", "a_log", a_log, a.shape[1:], a)
    checks.shaped("gdn_gating", "dt_bias", dt_bias, a.shape[1:], a)
    return _GDN_GATING.run(a, b, a_log, dt_bias)


def gated_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: DeltaState, rows: RaggedRows
) -> Tensor:
    """Per row t and V head: S <- exp(g) S; S <- S + beta (v - S k) k^T; o = S q / sqrt(Dk).

    The error term reads the decayed state (Gated Delta Networks, Yang et al. 2024). V head j
    reads q and k of head j // (Hv / Hk); q and k come L2-normalised. S starts as the committed
    matrix of the sequence's state slot, to which the pending rows of its window are applied first.
    Effect on the state slots of sequences with rows: the matrix is S after the pending rows and the
    new ones; of a held sequence it is S after the pending rows alone, and the window keeps k, v, g
    and beta of the new ones from row 0 on. `pending` itself is only read.
    New rows that fill a chunk of 64, counted from the start of their sequence, are computed
    together, all others and every row of a window one by one, so that neither a cut on the grid
    nor holding changes a bit; the algebra is the same. A bfloat16 matrix is computed with in
    float32 and rounded behind each chunk and behind each single row, whose output reads it before.
    Shapes: q, k [T, Hk, Dk], v [T, Hv, Dv] of one type, g <= 0 and beta [T, Hv] float32; state:
    matrix [S, Hv, Dv, Dk] float32 or bfloat16, windows [S, H, ...] of k, v, g and beta
    -> [T, Hv, Dv] in the type of q. Everything is float64 for float64 q. Raises ValueError for
    shapes or types that disagree, when Hk does not divide Hv, for H > 63, and for held sequences of
    more than H rows.
    """
    op = "gated_delta_rule"
    checks.activation(op, "q", q, 3)
    checks.twin(op, "k", k, q)
    checks.activation(op, "v", v, 3)
    if v.dtype is not q.dtype or v.shape[0] != q.shape[0] or v.shape[1] % q.shape[1]:
        seen = f"{v.dtype} of shape {tuple(v.shape)}"
        wanted = f"{q.dtype} of shape ({q.shape[0]}, multiple of {q.shape[1]}, Dv)"
        raise checks.wrong(op, "v", seen, wanted)
    for name, x in (("g", g), ("beta", beta)):
        if x.dtype is not wide(q):
            raise checks.wrong(op, name, x.dtype, str(wide(q)))
    checks.shaped(op, "g", g, v.shape[:2], q)
    checks.shaped(op, "beta", beta, v.shape[:2], q)
    checks.delta_state(op, state, k, v)
    checks.ragged(op, rows, q)
    return _GATED_DELTA_RULE.run(q, k, v, g, beta, state, rows)
