"""Gated DeltaNet in plain torch: a token-by-token recurrence and an equal chunked form."""

from collections.abc import Callable, Iterator
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.ops.exact import pointwise
from ninfer.ops.precision import wide
from ninfer.ops.tensors import DeltaState, RaggedRows
from ninfer.ops.windows import spans

CHUNK: Final = 64
_Form = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
# Chunks whose inner products are held at once.
_CHUNK_GROUP: Final = 8


def gdn_gating(a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor) -> tuple[Tensor, Tensor]:
    """See the contract."""
    dtype = wide(a)
    step = pointwise(functional.softplus, a.to(dtype) + dt_bias.to(dtype))
    return -torch.exp(a_log.to(dtype)) * step, pointwise(torch.sigmoid, b.to(dtype))


def gated_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: DeltaState, rows: RaggedRows
) -> Tensor:
    """See the contract."""
    out = v.new_empty(v.shape)
    for span in spans("gated_delta_rule", rows, state.pending, state.window):
        slot, begin, end = span.slot, span.start, span.stop
        matrix = state.matrix[slot]
        if span.kept:
            kept = slice(0, span.kept)
            advance(
                state.keys[slot, kept],
                state.values[slot, kept],
                state.decays[slot, kept],
                state.betas[slot, kept],
                matrix,
            )
        if span.held:
            count = end - begin
            new = slice(begin, end)
            out[new] = recurrent(q[new], k[new], v[new], g[new], beta[new], matrix.clone())
            state.keys[slot, :count] = k[new]
            state.values[slot, :count] = v[new]
            state.decays[slot, :count] = g[new]
            state.betas[slot, :count] = beta[new]
            continue
        for form, first, last in _grid(begin, end, span.position):
            part = slice(first, last)
            out[part] = form(q[part], k[part], v[part], g[part], beta[part], matrix)
    return out


def _grid(start: int, stop: int, position: int) -> Iterator[tuple[_Form, int, int]]:
    """Pieces of rows start..stop - 1, of which the first stands at `position` of its sequence.

    Whole chunks lie on multiples of 64 of the sequence; what stands before and behind them goes
    row by row. So the result does not depend on where a prompt was cut.
    """
    first = min(start + -position % CHUNK, stop)
    last = first + (stop - first) // CHUNK * CHUNK
    pieces = ((recurrent, start, first), (chunked, first, last), (recurrent, last, stop))
    return (piece for piece in pieces if piece[1] < piece[2])


def recurrent(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, matrix: Tensor) -> Tensor:
    """Rows of one sequence, one after another; `matrix` [Hv, Dv, Dk] is updated in place.

    Shapes as in the contract -> [n, Hv, Dv] in the type of `matrix`.
    """
    q = _spread(q, v.shape[1], matrix.dtype).unsqueeze(2)  # [n, Hv, 1, Dk]
    across = matrix.transpose(1, 2)
    out = v.new_empty((v.shape[0], v.shape[1], 1, v.shape[2]), dtype=matrix.dtype)
    for t in _written(k, v, g, beta, matrix):
        torch.bmm(q[t], across, out=out[t])
    return out.squeeze(2).mul_(q.shape[3] ** -0.5)


def advance(k: Tensor, v: Tensor, g: Tensor, beta: Tensor, matrix: Tensor) -> None:
    """The effect of `recurrent` on `matrix`, bit for bit, where nobody reads the outputs."""
    for _ in _written(k, v, g, beta, matrix):
        pass


def _written(k: Tensor, v: Tensor, g: Tensor, beta: Tensor, matrix: Tensor) -> Iterator[int]:
    """Write one row after another into `matrix`, giving each row's number once it is in."""
    # Row vectors times the transposed matrix: torch's bmm is many times slower for columns.
    k = _spread(k, v.shape[1], matrix.dtype).unsqueeze(2)  # [n, Hv, 1, Dk]
    v = v.to(matrix.dtype).unsqueeze(2)  # [n, Hv, 1, Dv]
    decay, beta = pointwise(torch.exp, g)[..., None, None], beta[..., None, None]
    across = matrix.transpose(1, 2)
    for t in range(v.shape[0]):
        matrix.mul_(decay[t])
        error = (v[t] - torch.bmm(k[t], across)).mul_(beta[t])
        matrix.baddbmm_(error.transpose(1, 2), k[t])
        yield t


def chunked(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, matrix: Tensor) -> Tensor:
    """The same rows and effect as `recurrent`, for n a multiple of 64, as matrix products.

    Within a chunk, with G the running sum of g, L[t, s] = exp(G_t - G_s) for s <= t, and A the
    strictly lower part of beta_t L[t, s] (k_t . k_s): (I + A) [U, W] = [beta V, beta exp(G) K].
    From the incoming S: N = U - W S^T, O = exp(G) Q S^T + (Q K^T * L) N, and then
    S <- exp(G_last) S + sum_t exp(G_last - G_t) n_t k_t^T (the WY form of the delta rule).
    """
    heads, dtype = v.shape[1], matrix.dtype
    parts = []
    for start in range(0, v.shape[0], CHUNK * _CHUNK_GROUP):
        part = slice(start, start + CHUNK * _CHUNK_GROUP)
        parts.append(
            _chunk_group(
                _fold(_spread(q[part], heads, dtype)),
                _fold(_spread(k[part], heads, dtype)),
                _fold(v[part].to(dtype)),
                _fold(g[part].unsqueeze(2)),
                _fold(beta[part].unsqueeze(2)),
                matrix,
            )
        )
    return torch.cat(parts).mul_(q.shape[2] ** -0.5)


def _chunk_group(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, matrix: Tensor
) -> Tensor:
    """Chunks [Hv, c, 64, ...] of one sequence -> rows [c * 64, Hv, Dv], not yet scaled."""
    ratio, rise, fall, last = _decays(g)
    keys = k.transpose(2, 3)
    system = (k @ keys).mul_(ratio).mul_(beta)
    right = torch.cat((v * beta, k * (beta * rise)), dim=3)
    # The solver reads the part below the diagonal only and takes ones on it.
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    u, w = solved.split((v.shape[3], k.shape[3]), dim=3)
    inner = (q @ keys).mul_(ratio)
    q, k = q * rise, k * fall
    outputs = []
    for c in range(q.shape[1]):
        across = matrix.transpose(1, 2)
        fresh = u[:, c] - w[:, c] @ across
        outputs.append(torch.baddbmm(q[:, c] @ across, inner[:, c], fresh))
        matrix.mul_(last[:, c]).baddbmm_(fresh.transpose(1, 2), k[:, c])
    return torch.cat(outputs, dim=1).transpose(0, 1)


def _decays(g: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """L [Hv, c, 64, 64], exp(G) and exp(G_last - G) [Hv, c, 64, 1], exp(G_last) [Hv, c, 1, 1].

    Differences of G lose the digits that G has gained, so they are taken in float64. The floor
    has exp() = 0 in both number types and keeps one huge decay from swamping its neighbours.
    """
    floor = -800.0 if g.dtype is torch.float64 else -200.0
    total = g.to(torch.float64).clamp_min(floor).cumsum(2)
    # Above the diagonal exp() may overflow: those entries are replaced before it is taken.
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=g.device).triu(1)
    ratio = (total - total.transpose(2, 3)).to(g.dtype).masked_fill_(later, float("-inf")).exp_()
    rise = total.to(g.dtype).exp()
    fall = (total[:, :, -1:] - total).to(g.dtype).exp()
    return ratio, rise, fall, rise[:, :, -1:]


def _fold(x: Tensor) -> Tensor:
    """[c * 64, H, D] as [H, c, 64, D]."""
    return x.reshape(-1, CHUNK, *x.shape[1:]).permute(2, 0, 1, 3)


def _spread(x: Tensor, heads: int, dtype: torch.dtype) -> Tensor:
    """Repeat each head of [n, Hk, D] for its neighbouring V heads: [n, Hv, D]."""
    wide_x = x.to(dtype)
    repeats = heads // x.shape[1]
    return wide_x if repeats == 1 else wide_x.repeat_interleave(repeats, dim=1)
