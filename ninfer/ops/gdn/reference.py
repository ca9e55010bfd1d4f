"""Gated DeltaNet in plain torch: a token-by-token recurrence and an equal chunked form."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.ops.exact import pointwise
from ninfer.ops.gdn.steps import Walk, recurrent, round_to, spread, walked, written
from ninfer.ops.precision import wide
from ninfer.ops.tensors import DeltaState, RaggedRows
from ninfer.ops.windows import Span, joined, spans

CHUNK: Final = 64
_Form = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, torch.dtype], Tensor]
# Chunks whose inner products are held at once.
_CHUNK_GROUP: Final = 8
# Matrices of sequences that are worked on side by side: many small ones, or few large ones, which
# would leave the processor's cache between two steps.
_GROUP_BYTES: Final = 4 << 20


def gdn_gating(a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor) -> tuple[Tensor, Tensor]:
    """See the contract."""
    dtype = wide(a)
    step = pointwise(functional.softplus, a.to(dtype) + dt_bias.to(dtype))
    return -torch.exp(a_log.to(dtype)) * step, pointwise(torch.sigmoid, b.to(dtype))


def gated_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: DeltaState, rows: RaggedRows
) -> Tensor:
    """See the contract."""
    out, kept = v.new_empty(v.shape), state.matrix.dtype
    here = list(spans("gated_delta_rule", rows, state.pending, state.window))
    for group in _groups([span for span in here if span.kept], state.matrix):
        _settle(group, state)
    short: list[Span] = []
    for span in here:
        pieces = list(_grid(span.start, span.stop, span.position))
        if span.held or all(form is recurrent for form, _, _ in pieces):
            short.append(span)
            continue
        (matrix,) = matrices = _matrices([span], state)
        for form, begin, end in pieces:
            part = slice(begin, end)
            out[part] = form(q[part], k[part], v[part], g[part], beta[part], matrix, kept)
        _commit([span], matrices, state)
    for group in _groups(short, state.matrix):
        walk = Walk.over([(span.start, span.stop - span.start) for span in group], q.device)
        q_, k_, v_, g_, beta_ = (x[walk.rows] for x in (q, k, v, g, beta))
        matrices = _matrices(group, state)
        out[walk.rows] = walked(q_, k_, v_, g_, beta_, matrices, walk.active, kept).to(out.dtype)
        _commit(group, matrices, state)
        _hold([span for span in group if span.held], (k, v, g, beta), state)
    return out


def _groups(here: list[Span], matrix: Tensor) -> Iterator[list[Span]]:
    """Sequences to work on side by side, most new rows first; a row has the same bits alone."""
    size = max(1, _GROUP_BYTES // (matrix[0].numel() * wide(matrix).itemsize))
    ordered = sorted(here, key=lambda span: span.start - span.stop)
    return (ordered[first : first + size] for first in range(0, len(ordered), size))


def _settle(group: list[Span], state: DeltaState) -> None:
    """Commit the kept rows of windows."""
    group = sorted(group, key=lambda span: -span.kept)
    runs = [(span.slot * state.window, span.kept) for span in group]
    walk = Walk.over(runs, state.matrix.device)
    k, v, g, beta = (part.flatten(0, 1)[walk.rows] for part in _windows(state))
    committed = [replace(span, held=False) for span in group]
    matrices = _matrices(committed, state)
    for _ in written(k, v, g, beta, matrices, walk.active, state.matrix.dtype):
        pass
    _commit(committed, matrices, state)


def _matrices(group: list[Span], state: DeltaState) -> Tensor:
    """Matrices [G, Hv, Dv, Dk] to work on, in the type to compute in.

    Those of a single sequence are the committed ones themselves, if their type allows it.
    """
    dtype = wide(state.matrix)
    if len(group) == 1:
        matrices = state.matrix[group[0].slot].unsqueeze(0)
        return matrices.to(dtype, copy=group[0].held)
    return state.matrix[[span.slot for span in group]].to(dtype)


def _commit(group: list[Span], matrices: Tensor, state: DeltaState) -> None:
    final = [index for index, span in enumerate(group) if not span.held]
    if final and (len(group) > 1 or matrices.dtype is not state.matrix.dtype):
        slots = [group[index].slot for index in final]
        state.matrix[slots] = matrices[final].to(state.matrix.dtype)


def _hold(group: list[Span], rows: tuple[Tensor, ...], state: DeltaState) -> None:
    """Keep the new rows k, v, g and beta of held sequences in their windows."""
    if group:
        device = state.matrix.device
        source = joined([(span.start, span.stop - span.start) for span in group], device)
        target = joined(
            [(span.slot * state.window, span.stop - span.start) for span in group], device
        )
        for window, part in zip(_windows(state), rows, strict=True):
            window.flatten(0, 1)[target] = part[source]


def _windows(state: DeltaState) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return state.keys, state.values, state.decays, state.betas


def _grid(start: int, stop: int, position: int) -> Iterator[tuple[_Form, int, int]]:
    """Pieces of rows start..stop - 1, of which the first stands at `position` of its sequence.

    Whole chunks lie on multiples of 64 of the sequence; what stands before and behind them goes
    row by row. So the result does not depend on where a prompt was cut.
    """
    first = min(start + -position % CHUNK, stop)
    last = first + (stop - first) // CHUNK * CHUNK
    pieces = ((recurrent, start, first), (chunked, first, last), (recurrent, last, stop))
    return (piece for piece in pieces if piece[1] < piece[2])


def chunked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    matrix: Tensor,
    kept: torch.dtype | None = None,
) -> Tensor:
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
                _fold(spread(q[part], heads, dtype)),
                _fold(spread(k[part], heads, dtype)),
                _fold(v[part].to(dtype)),
                _fold(g[part].unsqueeze(2)),
                _fold(beta[part].unsqueeze(2)),
                matrix,
                kept,
            )
        )
    return torch.cat(parts).mul_(q.shape[2] ** -0.5)


def _chunk_group(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    matrix: Tensor,
    kept: torch.dtype | None,
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
        round_to(kept, matrix)
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
