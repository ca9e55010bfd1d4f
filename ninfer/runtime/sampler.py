"""Draw the tokens of a pass from its logits: by seed and position only, drafts checked in order."""

from collections.abc import Sequence as Items
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ninfer import ops
from ninfer.errors import GenerationError, NInferError
from ninfer.request import TokenLogprob
from ninfer.runtime.batch import Piece
from ninfer.runtime.isolation import isolated
from ninfer.runtime.logit_rules import biased, constrained, is_penalised, penalised
from ninfer.runtime.logprobs import token_logprobs
from ninfer.runtime.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a piece produced: its tokens in order, and how many of its drafts were right.

    `tokens` has one entry more than drafts were accepted. With `error` there are none.
    """

    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()  # one for each token if asked for
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
    every = _draw_together(pieces, logits, addressable)
    drawn, row = [], 0
    for piece, known in zip(pieces, every, strict=True):
        if known is not None and piece.sequence.top_logprobs is None:
            # Nothing of its own is left to fail, and a view of its rows would cost more.
            drawn.append(_accept(piece, known))
        else:
            rows = logits[row : row + piece.logits]
            drawn.append(_draw_piece(piece, rows, addressable, known))
        row += piece.logits
    return drawn


def _draw_together(
    pieces: Items[Piece], logits: Tensor, addressable: int
) -> list[list[int] | None]:
    """The draws of each piece's rows by one call for all that can; None: draw alone."""
    free = [not _goes_row_by_row(piece) for piece in pieces]
    settings = [setting for piece in pieces for setting in _settings(piece)]
    if not settings or not any(free):
        return [None for _ in pieces]
    tokens = isolated("a draw", lambda: _draw_free(settings, logits, addressable))
    if isinstance(tokens, NInferError):
        # One of them is to blame. A row's draw depends on that row alone, so each can go by itself.
        return [None for _ in pieces]
    left = iter(tokens)
    groups = [[next(left) for _ in range(piece.logits)] for piece in pieces]
    return [group if is_free else None for group, is_free in zip(groups, free, strict=True)]


def _draw_piece(piece: Piece, logits: Tensor, addressable: int, known: list[int] | None) -> Drawn:
    """What one piece gives; whatever goes wrong with it ends its own sequence only."""

    def draw() -> Drawn:
        found = _drawn_of(piece, logits, addressable, known)
        return _with_logprobs(piece.sequence, found, logits, addressable)

    drawn = isolated("the draw of its next token", draw)
    return Drawn(error=drawn) if isinstance(drawn, NInferError) else drawn


def _drawn_of(piece: Piece, logits: Tensor, addressable: int, known: list[int] | None) -> Drawn:
    if known is not None:
        return _accept(piece, known)
    settings = _settings(piece)
    if needs_history(piece.sequence):
        return _draw_with_history(piece, _biased(settings, logits), addressable)
    return _accept(piece, _draw_free(settings, logits, addressable) if settings else [])


def _settings(piece: Piece) -> list[tuple[Sequence, int]]:
    """Whose row each wanted row of a piece is, and how many tokens ahead."""
    return [(piece.sequence, index) for index in range(piece.logits)]


def _biased(settings: Items[tuple[Sequence, int]], logits: Tensor) -> Tensor:
    return biased([sequence.sampling for sequence, _ in settings], logits)


def _draw_free(
    settings: Items[tuple[Sequence, int]], logits: Tensor, addressable: int
) -> list[int]:
    """One token for each row, whose history is known; -1 where the logits are not finite."""
    params, counts = zip(*((s.sampling, s.counts) for s, _ in settings), strict=True)
    logits = penalised(params, counts, _biased(settings, logits))
    return _draw_rows(settings, logits, addressable)


def _with_logprobs(sequence: Sequence, drawn: Drawn, logits: Tensor, addressable: int) -> Drawn:
    top, tokens = sequence.top_logprobs, drawn.tokens
    if top is None or not tokens:
        return drawn
    return replace(drawn, logprobs=token_logprobs(logits[: len(tokens)], tokens, addressable, top))


def needs_history(sequence: Sequence) -> bool:
    """Whether a draw depends on the tokens drawn before it; greedy ignores penalties."""
    bound = sequence.constraint is not None or sequence.forcer is not None
    return bound or is_penalised(sequence.sampling)


def _goes_row_by_row(piece: Piece) -> bool:
    """Whether a row of the piece has to wait for the draw of the row before it."""
    sequence = piece.sequence
    if sequence.constraint is not None or sequence.forcer is not None:
        return True
    return piece.logits > 1 and is_penalised(sequence.sampling)


def _accept(piece: Piece, tokens: Items[int]) -> Drawn:
    """Cut a piece's draws behind the first that its draft did not foresee."""
    kept: list[int] = []
    drafts = piece.sequence.drafts
    for index, token in enumerate(tokens):
        if token < 0:
            return Drawn(error=not_finite(piece.sequence, index))
        kept.append(token)
        if index == len(tokens) - 1 or drafts[index] != token:
            break
    return Drawn(tuple(kept))


def _draw_with_history(piece: Piece, logits: Tensor, addressable: int) -> Drawn:
    """One row after the other, each penalised, constrained or forced by all tokens before it."""
    sequence = piece.sequence
    constraint, forcer = sequence.constraint, sequence.forcer
    counts = dict(sequence.counts)
    kept: list[int] = []
    for index in range(piece.logits):
        row = logits[index : index + 1]
        if not bool(ops.finite_rows(row, addressable).all()):
            return Drawn(error=not_finite(sequence, index))
        forced = forcer.forced() if forcer is not None else None
        token = _draw_row(sequence, index, counts, row, addressable) if forced is None else forced
        if token < 0:
            # Every id that the constraint allows has a logit of minus infinity.
            return Drawn(error=not_finite(sequence, index))
        kept.append(token)
        counts[token] = counts.get(token, 0) + 1
        if forcer is not None:
            forcer.advance(token)
        if constraint is not None:
            is_allowed = constraint.advance(token)
            assert is_allowed, f"the constraint refuses token {token}"
            if constraint.is_finished:
                break
        if index < len(sequence.drafts) and sequence.drafts[index] != token:
            break
    return Drawn(tuple(kept))


def _draw_row(
    sequence: Sequence, ahead: int, counts: dict[int, int], row: Tensor, addressable: int
) -> int:
    """The token `ahead` places behind the newest, `counts` of generated ids standing before it."""
    if is_penalised(sequence.sampling):
        row = penalised([sequence.sampling], [counts], row)
    if sequence.constraint is not None:
        row = constrained(sequence.constraint, row)
    return _draw_rows([(sequence, ahead)], row, addressable)[0]


def _draw_rows(
    settings: Items[tuple[Sequence, int]], logits: Tensor, addressable: int
) -> list[int]:
    """One token for each row; -1 where the logits are not finite."""
    if all(sequence.sampling.temperature == 0 for sequence, _ in settings):
        greedy: list[int] = ops.argmax(logits, addressable).tolist()
        return greedy
    params = [sequence.sampling for sequence, _ in settings]
    heat, nucleus, floor, u = torch.tensor(
        [
            [p.temperature for p in params],
            [p.top_p for p in params],
            [p.min_p for p in params],
            [draw_uniform(sequence, index) for sequence, index in settings],
        ],
        dtype=torch.float64,
    )
    tokens = ops.sample(
        logits,
        limit=addressable,
        temperature=heat,
        top_k=torch.tensor([p.top_k for p in params]),
        top_p=nucleus,
        min_p=floor,
        u=u.to(logits.device),
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


def not_finite(sequence: Sequence, ahead: int) -> GenerationError:
    """The error of a sequence for whose token so many places ahead there are no usable logits."""
    return GenerationError(
        f"the model produced non-finite logits at position {len(sequence.tokens) + ahead}; "
        "'ninfer verify' checks the artifact"
    )
