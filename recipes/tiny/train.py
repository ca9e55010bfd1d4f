"""Train a demo checkpoint: `python -m recipes.tiny.train --model tiny --seconds 1200 OUT`."""

import argparse
import itertools
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recipes.tiny.batch import Batch
from recipes.tiny.checkpoint import load_weights, save_checkpoint
from recipes.tiny.feed import Feed, batches
from recipes.tiny.geometry import config_of
from recipes.tiny.losses import Losses, right_answers
from recipes.tiny.mixture import MIXTURES
from recipes.tiny.model import DemoModel
from recipes.tiny.optimiser import optimisers
from recipes.tiny.step import Pass

# Shares of the time: the rate falls from here on, stored values are imitated from here on, and
# MTP learns deeper steps from here on.
DECAY_FROM, STORED_FROM, DEEP_FROM = 0.5, 0.8, 0.6
WARM_UP_STEPS = 100
COMPILING_STEPS = 3
DEPTHS = (1, 3)


def main() -> None:
    """Parse the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder for the checkpoint and log")
    parser.add_argument("--model", choices=list(MIXTURES), required=True)
    parser.add_argument("--seconds", type=float, default=1200.0, help="time of training")
    parser.add_argument("--rate", type=float, default=2.5e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=65_536, help="tokens of a micro batch")
    parser.add_argument("--accumulate", type=int, default=2, help="micro batches of a step")
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--start", type=Path, help="checkpoint to go on from")
    parser.add_argument("--keep-every", type=float, default=300.0, help="seconds")
    train(parser.parse_args())


def train(options: argparse.Namespace) -> None:
    """Train for the given time, then write the checkpoint."""
    torch.manual_seed(options.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    device = torch.device(options.device)
    config = config_of(options.model)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = DemoModel(config, dtype).to(device)
    if options.start:
        model.load_state_dict(load_weights(options.start))
    stepping = optimisers(model, options.rate)
    feed = batches(Feed(MIXTURES[options.model], options.tokens, options.seed), options.workers)
    options.out.mkdir(parents=True, exist_ok=True)
    log = Log(options.out / "log.jsonl")
    log.write(
        event="start",
        model=options.model,
        parameters=sum(p.numel() for p in model.parameters()),
        device=torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        torch=torch.__version__,
        options={k: str(v) for k, v in vars(options).items()},
    )
    begun = start = kept = time.monotonic()
    passes = Passes(model, capture=device.type == "cuda")
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for step in itertools.count():
        # The first steps compile kernels; the schedule begins behind them.
        now = time.monotonic()
        start = now if step <= COMPILING_STEPS else start
        if now >= begun + options.seconds:
            break
        progress = (now - start) / (begun + options.seconds - start)
        micro = [next(feed).to(device) for _ in range(options.accumulate)]
        share = torch.stack([batch.weights.sum() for batch in micro]).sum()
        for batch in micro:
            found = passes.of(batch, progress)(batch, 1 / share)
            log.add(batch, found)
            if step % 10 == 0:
                log.count_right(right_answers(batch, found.wrong))
        rate = options.rate * _schedule(step, progress)
        torch.nn.utils.clip_grad_norm_(stepping[1].param_groups[0]["params"], 1.0)
        for optimiser in stepping:
            optimiser.param_groups[0]["lr"] = rate
            optimiser.step()
            optimiser.zero_grad(set_to_none=False)
        if step % 50 == 49:
            log.flush(step + 1, progress, rate, time.monotonic() - begun)
        if time.monotonic() - kept > options.keep_every:
            kept = time.monotonic()
            save_checkpoint(model, config, options.out / "kept")
    save_checkpoint(model, config, options.out / "checkpoint")
    log.write(event="end", steps=step, seconds=round(time.monotonic() - begun, 1))


class Passes:
    """The pass for each shape of batch, made anew when training enters another stage."""

    def __init__(self, model: DemoModel, *, capture: bool) -> None:
        self._model, self._capture = model, capture
        self._pool: Any = None
        self._stage: tuple[bool, bool] | None = None
        self._known: dict[torch.Size, Pass] = {}

    def of(self, batch: Batch, progress: float) -> Pass:
        """The pass for `batch` at this share of the time."""
        stage = (progress >= STORED_FROM, progress >= DEEP_FROM)
        if stage != self._stage:
            self._stage = stage
            self._known.clear()
            # Memory that no graph uses any more is given up, so that its handle is of no use.
            self._pool = torch.cuda.graph_pool_handle() if self._capture else None
            self._model.imitate_storage(stage[0])
        shape = batch.ids.shape
        if shape not in self._known:
            self._known[shape] = Pass(self._model, DEPTHS[stage[1]], self._pool)
        return self._known[shape]


def _schedule(step: int, progress: float) -> float:
    """Warm up, stay, and fall to nothing."""
    falling = min((1 - progress) / (1 - DECAY_FROM), 1.0)
    return min((step + 1) / WARM_UP_STEPS, 1.0) * max(falling, 0.01)


class Log:
    """Figures since the last line, written as JSON lines."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._right: dict[str, list[int]] = defaultdict(list)
        self._clear()
        self._since = time.monotonic()

    def _clear(self) -> None:
        self._sums: list[Tensor] = []
        self._weights: list[Tensor] = []
        self._tokens = 0

    def add(self, batch: Batch, found: Losses) -> None:
        """Take the losses of a batch; nothing waits for the device here."""
        self._sums.append(found.parts.clone())
        self._weights.append(batch.weights.sum())
        self._tokens += int(batch.ids.numel())

    def count_right(self, found: dict[str, list[int]]) -> None:
        """Take answers that were right or wrong."""
        for task, marks in found.items():
            self._right[task] = (self._right[task] + marks)[-200:]

    def flush(self, step: int, progress: float, rate: float, seconds: float) -> None:
        """Write one line of means and start anew."""
        now = time.monotonic()
        # A stage with more MTP steps may have begun since the last line.
        depth = min(len(sums) for sums in self._sums)
        total = torch.stack([sums[:depth] for sums in self._sums]).sum(0)
        each = (total / torch.stack(self._weights).sum()).tolist()
        names = ["loss", *(f"mtp{index}" for index in range(1, depth))]
        means = {name: round(value, 4) for name, value in zip(names, each, strict=True)}
        right = {task: round(sum(m) / len(m), 3) for task, m in sorted(self._right.items())}
        self.write(
            event="step",
            step=step,
            progress=round(progress, 4),
            rate=round(rate, 6),
            seconds=round(seconds, 1),
            tokens_per_second=round(self._tokens / (now - self._since)),
            **means,
            right=right,
        )
        self._clear()
        self._since = now

    def write(self, **values: Any) -> None:
        """One JSON line, at once; also to standard output."""
        line = json.dumps(values)
        self._file.write(line + "\n")
        self._file.flush()
        print(line, flush=True)


if __name__ == "__main__":
    main()
