"""Taking drawn tokens into a sequence: up to the first that ends it, and what becomes of it."""

from ninfer.request import FinishReason
from ninfer.runtime.requests import Progress
from ninfer.runtime.sampler import Drawn
from ninfer.runtime.sequence import Sequence


def begun(sequence: Sequence, drawn: Drawn) -> Progress:
    """Take the first token of a sequence that was not in the pass."""
    if drawn.error:
        return Progress(sequence, (), error=drawn.error)
    return advanced(sequence, *cut_at_end(sequence, drawn.tokens), drawn)


def advanced(
    sequence: Sequence, tokens: tuple[int, ...], finish: FinishReason | None, drawn: Drawn
) -> Progress:
    """Add tokens, the first of those that were drawn, to a sequence."""
    for token in tokens:
        sequence.append(token)
    if sequence.forcer is not None and sequence.forcer.is_done:
        sequence.forcer = None
    return Progress(sequence, tokens, finish, logprobs=drawn.logprobs[: len(tokens)])


def cut_at_end(
    sequence: Sequence, tokens: tuple[int, ...]
) -> tuple[tuple[int, ...], FinishReason | None]:
    """The tokens up to and with the first that ends the sequence, and why it ends.

    The loop guard takes in these tokens, so they have to be the sequence's next.
    """
    for index, token in enumerate(tokens):
        if token in sequence.stop_ids:
            return tokens[: index + 1], FinishReason.STOP_TOKEN
        if sequence.guard is not None and sequence.guard.advance(token):
            return tokens[: index + 1], FinishReason.LOOP_GUARD
        if index + 1 == sequence.remaining:
            return tokens[: index + 1], FinishReason.OUTPUT_LIMIT
    return tokens, None
