"""Draw the tokens of a pass from its logits: by seed and position only, drafts checked in order."""

from collections.abc import Sequence as Items
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ninfer import ops
from ninfer.errors import GenerationError, NInferError
from ninfer.request import SamplingParams, TokenConstraint
from ninfer.runtime.batch import Piece
from ninfer.runtime.isolation import isolated
from ninfer.runtime.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a piece produced: its tokens in order, and how many of its drafts were right.

    `tokens` has one entry more than drafts were accepted. With `error` there are none.
    """

    tokens: tuple[int, ...] = ()
    error: NInferError | None = None


def draw_uniform(sequence: Sequence, ahead: int = 0) -> float:
    """The random number of the token `ahead` places behind the sequence's newest.

    It depends on the seed and on where the token will stand, so neither batching nor speculation
    nor replay changes it. The first token uses the prompt length as position; later ones the cache
    position of the token before them, under another purpose.
    """
    seed, place = sequence.sampling.seed, len(sequence.tokens) + ahead
    if place == sequence.prompt_length:
        return ops.uniform(seed, place, ops.Purpose.PREFILL)
    return ops.uniform(seed, place - 1, ops.Purpose.DECODE)


def draw_pieces(pieces: Items[Piece], logits: Tensor, addressable: int) -> list[Drawn]:
    """The tokens of each piece from the logits [R, vocab_rows] of all pieces' wanted rows.

    Row i of a decode piece gives the token behind its i-th row; a draft is right exactly when it is
    that token, and the first wrong one ends the piece. Only ids below `addressable` are drawn.
    """
    parts = logits.split([piece.logits for piece in pieces])
    every = _draw_together(pieces, logits, addressable)
    return [
        _draw_piece(piece, rows, addressable, known)
        for piece, rows, known in zip(pieces, parts, every, strict=True)
    ]


def _draw_together(
    pieces: Items[Piece], logits: Tensor, addressable: int
) -> list[list[int] | None]:
    """The draws of each piece's rows by one call for all that need no history; None: draw alone."""
    free = [not needs_history(piece.sequence) for piece in pieces]
    settings = [setting for piece in pieces for setting in _settings(piece)]
    if not settings or not any(free):
        return [None for _ in pieces]
    tokens = isolated("a draw", lambda: _draw_rows(settings, logits, addressable))
    if isinstance(tokens, NInferError):
        # One of them is to blame. A row's draw depends on that row alone, so each can go by itself.
        return [None for _ in pieces]
    left = iter(tokens)
    groups = [[next(left) for _ in range(piece.logits)] for piece in pieces]
    return [group if is_free else None for group, is_free in zip(groups, free, strict=True)]


def _draw_piece(piece: Piece, logits: Tensor, addressable: int, known: list[int] | None) -> Drawn:
    """What one piece gives; whatever goes wrong with it ends its own sequence only."""

    def draw() -> Drawn:
        if known is not None:
            return _accept(piece, known)
        if needs_history(piece.sequence):
            return _draw_with_history(piece, logits, addressable)
        settings = _settings(piece)
        return _accept(piece, _draw_rows(settings, logits, addressable) if settings else [])

    drawn = isolated("the draw of its next token", draw)
    return Drawn(error=drawn) if isinstance(drawn, NInferError) else drawn


def _settings(piece: Piece) -> list[tuple[Sequence, int]]:
    """Whose row each wanted row of a piece is, and how many tokens ahead."""
    return [(piece.sequence, index) for index in range(piece.logits)]


def needs_history(sequence: Sequence) -> bool:
    """Whether a draw depends on the tokens drawn before it; greedy ignores penalties."""
    return sequence.constraint is not None or _is_penalised(sequence.sampling)


def _is_penalised(params: SamplingParams) -> bool:
    penalised = params.presence_penalty != 0 or params.frequency_penalty != 0
    return params.temperature > 0 and penalised


def _accept(piece: Piece, tokens: Items[int]) -> Drawn:
    """Cut a piece's draws behind the first that its draft did not foresee."""
    kept: list[int] = []
    drafts = piece.sequence.drafts
    for index, token in enumerate(tokens):
        if token < 0:
            return Drawn(error=_not_finite(piece.sequence, index))
        kept.append(token)
        if index == len(tokens) - 1 or drafts[index] != token:
            break
    return Drawn(tuple(kept))


def _draw_with_history(piece: Piece, logits: Tensor, addressable: int) -> Drawn:
    """One row after the other, each penalised and constrained by all tokens before it."""
    sequence, constraint = piece.sequence, piece.sequence.constraint
    counts = dict(sequence.counts)
    kept: list[int] = []
    for index in range(piece.logits):
        row = logits[index : index + 1]
        if not bool(ops.finite_rows(row, addressable).all()):
            return Drawn(error=_not_finite(sequence, index))
        if _is_penalised(sequence.sampling):
            row = _penalised(sequence.sampling, counts, row)
        if constraint is not None:
            row = _constrained(constraint, row)
        (token,) = _draw_rows([(sequence, index)], row, addressable)
        kept.append(token)
        counts[token] = counts.get(token, 0) + 1
        if constraint is not None:
            constraint.advance(token)
            if constraint.is_finished:
                break
        if index < len(sequence.drafts) and sequence.drafts[index] != token:
            break
    return Drawn(tuple(kept))


def _draw_rows(
    settings: Items[tuple[Sequence, int]], logits: Tensor, addressable: int
) -> list[int]:
    """One token for each row; -1 where the logits are not finite."""
    if all(sequence.sampling.temperature == 0 for sequence, _ in settings):
        greedy: list[int] = ops.argmax(logits, addressable).tolist()
        return greedy
    params = [sequence.sampling for sequence, _ in settings]
    uniforms = [draw_uniform(sequence, index) for sequence, index in settings]
    tokens = ops.sample(
        logits,
        limit=addressable,
        temperature=torch.tensor([p.temperature for p in params], dtype=torch.float64),
        top_k=torch.tensor([p.top_k for p in params]),
        top_p=torch.tensor([p.top_p for p in params], dtype=torch.float64),
        min_p=torch.tensor([p.min_p for p in params], dtype=torch.float64),
        u=torch.tensor(uniforms, dtype=torch.float64, device=logits.device),
    )
    return [int(token) for token in tokens.tolist()]


def next_token(sequence: Sequence, logits: Tensor, addressable: int) -> int:
    """The next token of one sequence from logits [1, vocab_rows].

    Raises GenerationError when the logits hold NaN or infinity.
    """
    piece = Piece(replace_drafts(sequence), 1, 1)
    (drawn,) = draw_pieces([piece], logits, addressable)
    if drawn.error:
        raise drawn.error
    return drawn.tokens[0]


def replace_drafts(sequence: Sequence) -> Sequence:
    """The sequence as it is without drafts."""
    return sequence if not sequence.drafts else replace(sequence, drafts=[])


def _not_finite(sequence: Sequence, ahead: int) -> GenerationError:
    return GenerationError(
        f"the model produced non-finite logits at position {len(sequence.tokens) + ahead}; "
        "'ninfer verify' checks the artifact"
    )


def _constrained(constraint: TokenConstraint, logits: Tensor) -> Tensor:
    words = torch.frombuffer(bytearray(constraint.allowed()), dtype=torch.int32)
    return ops.mask(logits, words.unsqueeze(0).to(logits.device))


def _penalised(params: SamplingParams, counts: dict[int, int], logits: Tensor) -> Tensor:
    if not counts:
        return logits
    dense = torch.zeros(logits.shape, dtype=torch.int64)
    dense[0, list(counts)] = torch.tensor(list(counts.values()))
    return ops.penalise(
        logits,
        dense.to(logits.device),
        torch.tensor([params.presence_penalty], device=logits.device),
        torch.tensor([params.frequency_penalty], device=logits.device),
    )
