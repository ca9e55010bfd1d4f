"""Contract of the whole Gated DeltaNet between its projections: convolution to gated norm."""

from typing import Final

from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.delta_net import reference
from ninfer.ops.dispatch import Route
from ninfer.ops.tensors import ConvState, DeltaRows, DeltaState, DeltaWeights, RaggedRows

_DELTA_NET: Final = Route(reference.delta_net)


def delta_net(
    x: DeltaRows,
    weights: DeltaWeights,
    conv: ConvState,
    delta: DeltaState,
    rows: RaggedRows,
    *,
    eps: float,
) -> Tensor:
    """gated_rmsnorm(gated_delta_rule(l2norm(q), l2norm(k), v, gdn_gating(a, b)), gate).

    q, k and v are the heads of causal_conv_silu(query ++ key ++ value), the norms of q and k take
    1e-6 in the square root, that of the result takes `eps`. Effects on the state slots of sequences
    with rows, and what no cut, window or company changes, are those of `causal_conv_silu` and
    `gated_delta_rule`, whose states `conv` and `delta` are; the window keeps what these ops keep.
    Between them, q, k and v are rounded to the type of x. A window that is too short for a held
    sequence is refused by forms that know its length; kernels, which never wait for it, drop the
    rows behind the window's end.
    Shapes: see `DeltaRows`, all of one type, `DeltaWeights` with C = 2 Hk Dk + Hv Dv, `ConvState`
    and `DeltaState` -> [T, Hv, Dv] in the type of x. Raises ValueError for shapes or types that
    disagree, when Hk does not divide Hv, and where those ops do.
    """
    op = "delta_net"
    _check_rows(op, x)
    heads, width = x.value.shape[1:]
    channels = 2 * x.key.shape[1] * x.key.shape[2] + heads * width
    convolution = weights.convolution
    if convolution.ndim != 2 or convolution.shape[0] < 2 or convolution.stride(1) != 1:
        seen = f"of shape {tuple(convolution.shape)}, strides {convolution.stride()}"
        raise checks.wrong(op, "weights.convolution", seen, "of shape (W >= 2, C), dense")
    size = (convolution.shape[0], channels)
    checks.shaped(op, "weights.convolution", convolution, size, x.value)
    checks.shaped(op, "weights.a_log", weights.a_log, (heads,), x.value)
    checks.shaped(op, "weights.dt_bias", weights.dt_bias, (heads,), x.value)
    checks.shaped(op, "weights.norm", weights.norm, (width,), x.value)
    checks.conv_state(op, conv, size, x.value)
    checks.delta_state(op, delta, x.key, x.value)
    checks.ragged(op, rows, x.value)
    return _DELTA_NET.run(x, weights, conv, delta, rows, eps=eps)


def _check_rows(op: str, x: DeltaRows) -> None:
    value = x.value
    checks.activation(op, "x.value", value, 3)
    checks.activation(op, "x.key", x.key, 3)
    count, heads = value.shape[:2]
    if x.key.dtype is not value.dtype or x.key.shape[0] != count or heads % x.key.shape[1]:
        seen = f"{x.key.dtype} of shape {tuple(x.key.shape)}"
        raise checks.wrong(op, "x.key", seen, f"{value.dtype} of shape ({count}, Hk, Dk)")
    checks.twin(op, "x.query", x.query, x.key)
    checks.twin(op, "x.gate", x.gate, value)
    for name, part in (("x.a", x.a), ("x.b", x.b)):
        checks.activation(op, name, part, 2)
        if part.dtype is not value.dtype:
            raise checks.wrong(op, name, part.dtype, str(value.dtype))
        checks.shaped(op, name, part, (count, heads), value)
