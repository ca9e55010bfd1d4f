"""Contract of sampling: penalties, candidate cuts, draws, greedy choice and log-probabilities."""

from typing import Final

from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.dispatch import Route
from ninfer.ops.sampling import reference
from ninfer.ops.tensors import Candidates

_PENALISE: Final = Route(reference.penalise)
_FINITE_ROWS: Final = Route(reference.finite_rows)
_ARGMAX: Final = Route(reference.argmax)
_CANDIDATES: Final = Route(reference.candidates)
_DRAW: Final = Route(reference.draw)
_SAMPLE: Final = Route(reference.sample)
_LOGPROBS: Final = Route(reference.logprobs)


def penalise(logits: Tensor, counts: Tensor, presence: Tensor, frequency: Tensor) -> Tensor:
    """logit - presence * [count > 0] - frequency * count.

    Shapes: logits [R, V], counts [R, V] integers >= 0, presence and frequency [R] floats
    -> [R, V] float32 (float64 for float64). Raises ValueError for shapes that disagree.
    """
    checks.activation("penalise", "logits", logits, 2)
    checks.shaped("penalise", "counts", counts, logits.shape, logits)
    if counts.dtype.is_floating_point:
        raise checks.wrong("penalise", "counts", counts.dtype, "integers")
    checks.shaped("penalise", "presence", presence, logits.shape[:1], logits)
    checks.shaped("penalise", "frequency", frequency, logits.shape[:1], logits)
    return _PENALISE.run(logits, counts, presence, frequency)


def finite_rows(logits: Tensor, limit: int) -> Tensor:
    """Whether a row can be sampled: no NaN or +inf among ids below `limit`, and not all -inf.

    Shapes: logits [R, V] -> [R] bool. Raises ValueError for a limit outside 1..V.
    """
    _check_logits("finite_rows", logits, limit)
    return _FINITE_ROWS.run(logits, limit)


def argmax(logits: Tensor, limit: int) -> Tensor:
    """Id of the largest logit among ids below `limit`, the lowest on ties.

    A row that `finite_rows` refuses gives -1. Shapes: logits [R, V] -> [R] int64.
    Raises ValueError for a limit outside 1..V.
    """
    _check_logits("argmax", logits, limit)
    return _ARGMAX.run(logits, limit)


def candidates(
    logits: Tensor,
    *,
    limit: int,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
) -> Candidates:
    """The tokens of each row that a draw may give, with their weights.

    Ids below `limit` are ranked by logit, lower id first on ties; the best top_k stay (0: all).
    Weights are w_j = exp((x_j - x_0) / temperature). The list ends before the first j with
    w_j < min_p * w_0, and after the first j where the running sum of w reaches top_p times the
    sum over the top_k (top_p >= 1 cuts nothing, 0 leaves the best). Temperature <= 0 leaves the
    best token alone; a row that `finite_rows` refuses leaves the id -1 alone.
    Shapes: logits [R, V]; temperature, top_p, min_p [R] floats and top_k [R] integers, on any
    device -> Candidates of R rows. Weights are float64.
    Raises ValueError for a limit outside 1..V and for settings that are not [R].
    """
    _check_logits("candidates", logits, limit)
    _check_settings("candidates", logits, temperature, top_k, top_p, min_p)
    return _CANDIDATES.run(
        logits, limit=limit, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p
    )


def draw(choice: Candidates, u: Tensor) -> Tensor:
    """Inverse CDF: the first candidate whose running weight exceeds u times the row's sum.

    Shapes: choice of R rows, u [R] in [0, 1) -> [R] int64. Raises ValueError for another shape.
    """
    checks.shaped("draw", "u", u, choice.ids.shape[:1], choice.ids)
    return _DRAW.run(choice, u)


def sample(
    logits: Tensor,
    *,
    limit: int,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    u: Tensor,
) -> Tensor:
    """`draw` from `candidates`: the next token of each row; temperature <= 0 is `argmax`.

    A row that `finite_rows` refuses gives -1. Shapes as there, u [R] in [0, 1) -> [R] int64.
    Raises ValueError for a limit outside 1..V and for settings that are not [R].
    """
    _check_logits("sample", logits, limit)
    _check_settings("sample", logits, temperature, top_k, top_p, min_p)
    checks.shaped("sample", "u", u, logits.shape[:1], logits)
    return _SAMPLE.run(
        logits, limit=limit, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, u=u
    )


def logprobs(logits: Tensor, ids: Tensor, limit: int) -> Tensor:
    """log softmax over the ids below `limit`, read at `ids`.

    Shapes: logits [R, V], ids [R, N] int64 below limit -> [R, N] float32 (float64 for float64).
    Raises ValueError for a limit outside 1..V and for shapes that disagree.
    """
    _check_logits("logprobs", logits, limit)
    checks.indices("logprobs", "ids", ids, (logits.shape[0], ids.shape[-1]), logits)
    return _LOGPROBS.run(logits, ids, limit)


def _check_logits(op: str, logits: Tensor, limit: int) -> None:
    checks.activation(op, "logits", logits, 2)
    if not 1 <= limit <= logits.shape[1]:
        raise checks.wrong(op, "limit", limit, f"in 1..{logits.shape[1]}")


def _check_settings(op: str, logits: Tensor, *settings: Tensor) -> None:
    names = ("temperature", "top_k", "top_p", "min_p")
    for name, setting in zip(names, settings, strict=True):
        if setting.shape != logits.shape[:1]:
            seen = f"of shape {tuple(setting.shape)}"
            raise checks.wrong(op, name, seen, f"of shape ({logits.shape[0]},)")
