"""Log-probabilities of drawn tokens and of prompts, from the model's own logits."""

from collections.abc import Callable
from collections.abc import Sequence as Items

import torch
from torch import Tensor

from ninfer import ops
from ninfer.errors import GenerationError
from ninfer.request import TokenLogprob
from ninfer.runtime.batch import Piece
from ninfer.runtime.sequence import Sequence
from ninfer.runtime.workspace import PROMPT_ROWS


def token_logprobs(
    logits: Tensor, tokens: Items[int], addressable: int, top: int
) -> tuple[TokenLogprob, ...]:
    """Of tokens[i] under row i of logits [R, V], each with the `top` best ids below `addressable`.

    The rows must be finite.
    """
    ids = torch.tensor(tokens, device=logits.device).unsqueeze(1)
    chosen = ops.logprobs(logits, ids, addressable)[:, 0].tolist()
    best_ids, best = ops.top_logprobs(logits, addressable, top)
    return tuple(
        TokenLogprob(token, value, tuple(zip(row_ids, row_values, strict=True)))
        for token, value, row_ids, row_values in zip(
            tokens, chosen, best_ids.tolist(), best.tolist(), strict=True
        )
    )


def needs_prompt_logprobs(sequence: Sequence) -> bool:
    """Whether log-probabilities of prompt tokens are asked for and not all known."""
    known = len(sequence.prompt_logprobs)
    return sequence.prompt_top is not None and known < sequence.prompt_length


@torch.inference_mode()
def score_prompt(
    piece: Piece, hidden: Tensor, head: Callable[[Tensor], Tensor], addressable: int
) -> None:
    """Add the log-probabilities of the prompt tokens behind each row of a prefill piece.

    Call it before the piece is committed. `hidden` [count, hidden] are its rows, of which `head`
    makes logits, a few at a time. What is known already stays: a preempted sequence computes its
    prompt again. Raises GenerationError when logits are not finite.
    """
    sequence, start = piece.sequence, piece.sequence.cached
    known = sequence.prompt_logprobs
    assert sequence.prompt_top is not None and len(known) >= start + 1
    first, last = len(known), min(start + piece.count + 1, sequence.prompt_length)
    for token in range(first, last, PROMPT_ROWS):
        behind = range(token, min(token + PROMPT_ROWS, last))
        logits = head(hidden[behind.start - 1 - start : behind.stop - 1 - start])
        if not bool(ops.finite_rows(logits, addressable).all()):
            raise GenerationError(
                f"the model produced non-finite logits in the prompt before position {behind.stop};"
                " 'ninfer verify' checks the artifact"
            )
        ids = sequence.tokens[behind.start : behind.stop]
        known.extend(token_logprobs(logits, ids, addressable, sequence.prompt_top))
