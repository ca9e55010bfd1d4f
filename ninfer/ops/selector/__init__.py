"""Contract of choosing drafts: ranking over indexed head rows, edge scores, and their softmax."""

from typing import Final

from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.dispatch import Route
from ninfer.ops.selector import reference

_INDEXED_ARGMAX: Final = Route(reference.indexed_argmax)
_INDEXED_TOP: Final = Route(reference.indexed_top)
_EDGE_SCORES: Final = Route(reference.edge_scores)
_TEMPERED_SOFTMAX: Final = Route(reference.tempered_softmax)


def indexed_argmax(logits: Tensor, ids: Tensor) -> Tensor:
    """The id of the largest logit, where column i stands for id ids[i]; lowest id on ties.

    Columns from N on stand for nothing and are not looked at. A row with NaN or +inf, or with
    nothing but -inf, gives -1.
    Shapes: logits [R, V], ids [N] int64, all different, 1 <= N <= V -> [R] int64.
    Raises ValueError for shapes that disagree.
    """
    _check_indexed("indexed_argmax", logits, ids)
    return _INDEXED_ARGMAX.run(logits, ids)


def indexed_top(logits: Tensor, ids: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(logits, ids) of the `count` best columns of each row, best first, lower id first on ties.

    Column i stands for id ids[i], columns from N on for nothing. NaN counts as -inf.
    Shapes: logits [R, V], ids [N] int64, all different, 1 <= N <= V -> [R, count] in the type of
    logits and [R, count] int64. Raises ValueError for a count outside 1..N.
    """
    _check_indexed("indexed_top", logits, ids)
    if not 1 <= count <= ids.shape[0]:
        raise checks.wrong("indexed_top", "count", count, f"in 1..{ids.shape[0]}")
    return _INDEXED_TOP.run(logits, ids, count)


def edge_scores(
    logits: Tensor,
    ids: Tensor,
    previous: Tensor,
    gate: Tensor,
    predecessors: Tensor,
    successors: Tensor,
) -> Tensor:
    """logits[i, c] + sum_r predecessors[previous[i], r] * gate[i, r] * successors[ids[i, c], r].

    Each candidate's own logit, plus a bilinear score of its following the token before it.
    Shapes: logits [R, C], ids [R, C] int64, previous [R] int64, gate [R, r], predecessors and
    successors [V, r] dense -> [R, C] float32 (float64 for float64). Domain: ids and previous in
    0..V - 1. Raises ValueError for shapes that disagree.
    """
    op = "edge_scores"
    checks.activation(op, "logits", logits, 2)
    checks.activation(op, "gate", gate, 2)
    count, rank = logits.shape[0], gate.shape[1]
    checks.indices(op, "ids", ids, logits.shape, logits)
    checks.indices(op, "previous", previous, (count,), logits)
    checks.shaped(op, "gate", gate, (count, rank), logits)
    checks.activation(op, "predecessors", predecessors, 2)
    checks.shaped(op, "predecessors", predecessors, (predecessors.shape[0], rank), logits)
    checks.activation(op, "successors", successors, 2)
    checks.shaped(op, "successors", successors, predecessors.shape, logits)
    return _EDGE_SCORES.run(logits, ids, previous, gate, predecessors, successors)


def tempered_softmax(scores: Tensor, temperature: Tensor) -> Tensor:
    """softmax(scores / temperature) of each row; 1 at the first maximum where temperature <= 0.

    Shapes: scores [R, C], temperature [R] floats -> [R, C] float32 (float64 for float64).
    Raises ValueError for shapes that disagree.
    """
    checks.activation("tempered_softmax", "scores", scores, 2)
    checks.activation("tempered_softmax", "temperature", temperature, 1)
    checks.shaped("tempered_softmax", "temperature", temperature, scores.shape[:1], scores)
    return _TEMPERED_SOFTMAX.run(scores, temperature)


def _check_indexed(op: str, logits: Tensor, ids: Tensor) -> None:
    checks.activation(op, "logits", logits, 2)
    if ids.ndim != 1 or not 1 <= ids.shape[0] <= logits.shape[1]:
        seen = f"of shape {tuple(ids.shape)}"
        raise checks.wrong(op, "ids", seen, f"of shape (1..{logits.shape[1]},)")
    checks.indices(op, "ids", ids, ids.shape, logits)
