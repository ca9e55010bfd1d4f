"""Draw the next token of a sequence from its logits, by seed and position only."""

import torch
from torch import Tensor

from ninfer import ops
from ninfer.errors import GenerationError
from ninfer.request import SamplingParams
from ninfer.runtime.sequence import Sequence


def draw_uniform(sequence: Sequence) -> float:
    """The random number of the sequence's next token.

    It depends on the seed and on where the token will stand, so neither batching nor speculation
    nor replay changes it. The first token uses the prompt length as position; later ones the cache
    position of the token before them, under another purpose.
    """
    seed = sequence.sampling.seed
    if sequence.generated == 0:
        return ops.uniform(seed, sequence.prompt_length, ops.Purpose.PREFILL)
    return ops.uniform(seed, len(sequence.tokens) - 1, ops.Purpose.DECODE)


def next_token(sequence: Sequence, logits: Tensor, addressable: int) -> int:
    """The next token id from logits [1, vocab_rows], among ids below `addressable`.

    Raises GenerationError when the logits hold NaN or infinity; greedy decoding ignores penalties.
    """
    if not bool(ops.finite_rows(logits, addressable).all()):
        raise GenerationError(
            f"the model produced non-finite logits at position {len(sequence.tokens)}; "
            "'ninfer verify' checks the artifact"
        )
    params = sequence.sampling
    if params.temperature == 0:
        return int(ops.argmax(logits, addressable)[0])
    device = logits.device
    return int(
        ops.sample(
            _penalised(sequence, logits),
            limit=addressable,
            temperature=torch.tensor([params.temperature], device=device),
            top_k=torch.tensor([params.top_k], device=device),
            top_p=torch.tensor([params.top_p], device=device),
            min_p=torch.tensor([params.min_p], device=device),
            u=torch.tensor([draw_uniform(sequence)], dtype=torch.float64, device=device),
        )[0]
    )


def _penalised(sequence: Sequence, logits: Tensor) -> Tensor:
    params: SamplingParams = sequence.sampling
    if not sequence.counts or (params.presence_penalty == 0 and params.frequency_penalty == 0):
        return logits
    counts = torch.zeros_like(logits, dtype=torch.int64)
    ids = torch.tensor(list(sequence.counts), device=logits.device)
    counts[0, ids] = torch.tensor(list(sequence.counts.values()), device=logits.device)
    return ops.penalise(
        logits,
        counts,
        torch.tensor([params.presence_penalty], device=logits.device),
        torch.tensor([params.frequency_penalty], device=logits.device),
    )
