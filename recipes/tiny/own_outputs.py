"""A model's own answers to prompts, greedy or drawn, without a decoding loop.

Jacobi iteration: every pass predicts all answer tokens at once from those of the pass before. The
answer is right as far as a pass changed nothing, and each pass makes at least one more token right;
where text is predictable it makes many.
"""

import torch
from torch import Tensor

from recipes.tiny.batch import Batch
from recipes.tiny.model import DemoModel


@torch.no_grad()
def own_answers(
    model: DemoModel, batch: Batch, passes: int, temperature: float, end_id: int
) -> Batch:
    """`batch` with answers that `model` gives itself; `targets` are the tokens that settled.

    The reference answers are only the first guess, and how much room there is. Draws use noise
    that is fixed for each place, which makes the answer a function of the prompt. Behind the end of
    an answer nothing is a target.
    """
    assert batch.slices is None
    ids = batch.ids.clone()
    room = batch.targets | _grown(batch)
    first = room.float().argmax(-1)  # [B] where each answer starts
    noise = _noise(ids, model.lm_head.weight.shape[0]) if temperature else None
    settled = first.clone()
    at = torch.arange(ids.shape[1], device=ids.device)
    for _ in range(passes):
        chosen = _choose(model, batch, ids, noise, temperature)
        new = torch.where(room & (at >= settled.unsqueeze(-1)), chosen, ids)
        changed = new != ids
        moved = torch.where(changed.any(-1), changed.float().argmax(-1) + 1, ids.shape[1])
        settled = torch.maximum(settled, torch.minimum(moved, torch.full_like(moved, len(at))))
        ids = new
        if bool((settled >= batch.ids.shape[1]).all()):
            break
    ended = ((ids == end_id) & room).float().cumsum(-1) - ((ids == end_id) & room).float() > 0
    kept = room & (at < settled.unsqueeze(-1)) & ~ended
    return Batch(
        ids=ids,
        weights=kept.float(),
        targets=kept,
        positions=batch.positions,
        lengths=batch.lengths,
        tasks=batch.tasks,
    )


def _grown(batch: Batch) -> Tensor:
    """The padding behind each sample: answers may be longer than the reference."""
    at = torch.arange(batch.ids.shape[1], device=batch.ids.device)
    return at >= batch.lengths.unsqueeze(-1)


def _choose(
    model: DemoModel, batch: Batch, ids: Tensor, noise: Tensor | None, temperature: float
) -> Tensor:
    embedded = torch.nn.functional.embedding(ids, model.model.language_model.embed_tokens.value())
    at = torch.arange(ids.shape[1], device=ids.device).expand(3, *ids.shape)
    hidden, _ = model.hidden(embedded, at)
    logits = model.lm_head(hidden).float()
    if noise is not None:
        logits = logits / temperature + noise
    best = logits.argmax(-1)
    return torch.cat([ids[:, :1], best[:, :-1]], dim=1)


def _noise(ids: Tensor, rows: int) -> Tensor:
    uniform = torch.rand(*ids.shape, rows, device=ids.device).clamp_min_(1e-20)
    return -(-uniform.log()).log_()
