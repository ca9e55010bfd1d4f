"""Train the DFlash drafter on a model's own answers: `python -m recipes.tiny.train_drafter OUT`."""

import argparse
import itertools
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from recipes.tiny.batch import Batch
from recipes.tiny.checkpoint import load_weights, save_drafter
from recipes.tiny.drafter import Drafter
from recipes.tiny.encode import Encoder
from recipes.tiny.feed import Singles, batches
from recipes.tiny.geometry import DFLASH, config_of
from recipes.tiny.mixture import MIXTURES
from recipes.tiny.model import DemoModel
from recipes.tiny.optimiser import optimisers
from recipes.tiny.own_outputs import own_answers
from recipes.tiny.train import Log

# Longer samples hold long prompts and few answer tokens.
LENGTH = 768
ANCHORS = 8
PASSES = 24
# Answers are read again this often before new ones are made.
READINGS = 3
# Later drafts of a block count less: they matter only when all before them are accepted.
FADING = 7.0
TEMPERATURES = (0.0, 0.0, 0.7)


def main() -> None:
    """Parse the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", type=Path, required=True, help="checkpoint folder of tiny-moe")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=32_768, help="tokens of a batch")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    train(parser.parse_args())


def train(options: argparse.Namespace) -> None:
    """Train for the given time, then write the drafter's checkpoint."""
    torch.manual_seed(options.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    device = torch.device(options.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    target = DemoModel(config_of("tiny-moe"), dtype).to(device).eval()
    target.load_state_dict(load_weights(options.target))
    target.imitate_storage(True)
    target.requires_grad_(False)
    drafter = Drafter(DFLASH).to(device)
    stepping = optimisers(drafter, options.rate)
    options.out.mkdir(parents=True, exist_ok=True)
    log = Log(options.out / "log.jsonl")
    log.write(event="start", parameters=sum(p.numel() for p in drafter.parameters()))
    source = Singles(MIXTURES["tiny-moe"], LENGTH, options.tokens // LENGTH, options.seed)
    feed = batches(source, options.workers)
    end_id = Encoder().tokenizer.special["<|im_end|>"]
    start = time.monotonic()
    hits = torch.zeros(DFLASH["block_size"] - 1, device=device)
    seen = torch.zeros_like(hits)
    for step in itertools.count():
        progress = (time.monotonic() - start) / options.seconds
        if progress >= 1:
            break
        drafter.imitate_storage(progress > 0.7)
        if step % READINGS == 0:
            temperature = TEMPERATURES[step // READINGS % len(TEMPERATURES)]
            answers = own_answers(target, next(feed).to(device), PASSES, temperature, end_id)
            with torch.no_grad():
                embedded = target.embed(answers)
                _, taps = target.hidden(embedded, answers, DFLASH["target_layer_ids"])
        loss, right, counted = _loss(target, drafter, answers, taps, dtype)
        loss.backward()
        hits, seen = hits * 0.98 + right, seen * 0.98 + counted
        falling = min((1 - progress) / 0.5, 1.0) * min((step + 1) / 50, 1.0)
        for optimiser in stepping:
            optimiser.param_groups[0]["lr"] = options.rate * max(falling, 0.01)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        if step % 50 == 49:
            shares = (hits / seen.clamp_min(1)).tolist()
            log.write(
                event="step",
                step=step + 1,
                seconds=round(time.monotonic() - start, 1),
                loss=round(loss.item(), 4),
                right_at=[round(share, 3) for share in shares],
            )
    save_drafter(drafter.state_dict(), options.out / "drafter")


def _loss(
    target: DemoModel, drafter: Drafter, batch: Batch, taps: list[Tensor], dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, and right drafts and all drafts by their place in a block."""
    size = DFLASH["block_size"]
    allowed = batch.targets.clone()
    allowed[:, -1] = False
    # The last prompt token is an anchor of nothing; the first answer token is the first anchor.
    weights = allowed.float() + 1e-9
    anchors = torch.multinomial(weights, ANCHORS, replacement=True)  # [B, A]
    places = anchors.unsqueeze(-1) + torch.arange(size, device=anchors.device)  # [B, A, 16]
    inside = places < batch.ids.shape[1]
    clipped = places.clamp_max(batch.ids.shape[1] - 1)
    tokens = batch.ids.unsqueeze(1).expand(-1, ANCHORS, -1).gather(2, clipped)
    wanted = batch.targets.unsqueeze(1).expand(-1, ANCHORS, -1).gather(2, clipped) & inside
    wanted = wanted[:, :, :1] & wanted.long().cumprod(-1).bool()
    shown = torch.full_like(tokens, DFLASH["mask_token_id"])
    shown[:, :, 0] = tokens[:, :, 0]
    table = target.model.language_model.embed_tokens.value()
    embedded = functional.embedding(shown, table).to(dtype)
    states = drafter([tap.to(dtype) for tap in taps], embedded, anchors)
    logits = target.lm_head(states).float()  # [B, A, 15, V]
    truth, counted = tokens[:, :, 1:], wanted[:, :, 1:]
    each = functional.cross_entropy(logits.flatten(0, 2), truth.flatten(), reduction="none")
    fading = torch.exp(-torch.arange(size - 1, device=each.device) / FADING)
    share = counted * fading
    loss = (each.view_as(share) * share).sum() / share.sum().clamp_min(1)
    right = (logits.argmax(-1) == truth) & counted
    return loss, right.sum((0, 1)).float(), counted.sum((0, 1)).float()


if __name__ == "__main__":
    main()
