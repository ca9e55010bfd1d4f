"""A model's own answers to prompts, greedy or drawn, without a decoding loop.

Jacobi iteration: every pass predicts all answer tokens at once from those of the pass before. The
answer is right as far as a pass changed nothing, and each pass makes at least one more token right;
where text is predictable it makes many.
"""

from dataclasses import replace

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
    at = torch.arange(ids.shape[1], device=ids.device)
    room = batch.targets | (batch.owners == len(batch.tasks))
    first = room.float().argmax(-1)  # [B] where each answer starts
    noise = _noise(ids, model.lm_head.weight.shape[0]) if temperature else None
    settled = first.clone()
    for _ in range(passes):
        chosen = _choose(model, replace(batch, ids=ids), noise, temperature)
        new = torch.where(room & (at >= settled.unsqueeze(-1)), chosen, ids)
        changed = new != ids
        moved = torch.where(changed.any(-1), changed.float().argmax(-1) + 1, len(at))
        settled = torch.maximum(settled, moved)
        ids = new
        if bool((settled >= len(at)).all()):
            break
    ends = ((ids == end_id) & room).float()
    kept = room & (at < settled.unsqueeze(-1)) & (ends.cumsum(-1) - ends == 0)
    return replace(batch, ids=ids, weights=kept.float(), targets=kept)


def _choose(model: DemoModel, batch: Batch, noise: Tensor | None, temperature: float) -> Tensor:
    hidden, _ = model.hidden(model.embed(batch), batch)
    logits = model.lm_head(hidden).float()
    if noise is not None:
        logits = logits / temperature + noise
    return torch.cat([batch.ids[:, :1], logits.argmax(-1)[:, :-1]], dim=1)


def _noise(ids: Tensor, rows: int) -> Tensor:
    uniform = torch.rand(*ids.shape, rows, device=ids.device).clamp_min_(1e-20)
    return -(-uniform.log()).log_()
