"""Untrained demo models of reduced size, as modules, as checkpoints and as artifacts."""

import copy
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ninfer.convert import ConvertOptions, convert
from recipes.tiny.batch import Batch, pad
from recipes.tiny.checkpoint import load_weights, save_checkpoint, save_drafter
from recipes.tiny.drafter import Drafter
from recipes.tiny.encode import Encoded, Encoder
from recipes.tiny.geometry import DFLASH, VOCAB_ROWS, config_of
from recipes.tiny.mixture import task_makers
from recipes.tiny.model import DemoModel

NAMES = ("tiny", "tiny-moe")
SMALLER: dict[str, Any] = {
    "num_hidden_layers": 4,
    "hidden_size": 128,
    "num_attention_heads": 3,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
DRAFTER = {**DFLASH, "target_layer_ids": [0, 2, 3], "block_size": 8, "sliding_window": 24}


def reduced_config(name: str) -> dict[str, Any]:
    """The config.json of a demo checkpoint with fewer and narrower layers."""
    config = copy.deepcopy(config_of(name))
    config["text_config"] |= SMALLER
    if name == "tiny":
        config["text_config"]["intermediate_size"] = 192
        # Narrower than two groups of 64: the last group of a row is padded, as at full size.
        config["vision_config"] |= {"depth": 2, "hidden_size": 72, "intermediate_size": 200}
        config["vision_config"] |= {"num_heads": 1, "out_hidden_size": 128}
    else:
        config["text_config"] |= {"num_experts": 6, "num_experts_per_tok": 2}
    return config


def perturbed(module: torch.nn.Module) -> torch.nn.Module:
    """The module with norms and biases that are not what they start from."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.ndim == 1 and not name.endswith(("A_log", "dt_bias")):
                parameter += 0.1 * torch.randn_like(parameter)
    return module


def untrained(name: str) -> DemoModel:
    """A float32 model of reduced size."""
    model = DemoModel(reduced_config(name), torch.float32)
    perturbed(model)
    # Logits spread as those of a trained model do.
    model.lm_head.weight.data *= 3
    return model.eval()


def exported(name: str, folder: Path) -> tuple[DemoModel, Drafter, Path]:
    """A model and a drafter as their checkpoints hold them, and the artifact of both.

    Only `tiny-moe` has the drafter in its artifact. Both imitate the stored formats.
    """
    model, drafter = untrained(name), Drafter(DRAFTER)
    perturbed(drafter)
    save_checkpoint(model, reduced_config(name), folder / "model")
    save_drafter(drafter.state_dict(), folder / "drafter", DRAFTER)
    counts = folder / "counts"
    np.arange(VOCAB_ROWS, dtype="<i8").tofile(counts)
    options = ConvertOptions(
        target=f"{name}/groupwise-int",
        source=folder / "model",
        draft_counts=counts,
        draft_head_rows=256,
        output=folder / f"{name}.ninfer",
    )
    if name == "tiny-moe":
        options = replace(options, drafter_source=folder / "drafter")
    done = convert(options)
    assert done.unused == ()
    model.load_state_dict(load_weights(folder / "model"))
    drafter.load_state_dict(load_weights(folder / "drafter"))
    model.imitate_storage(True)
    drafter.imitate_storage(True)
    return model, drafter, options.output


def batch_of(task: str, length: int, seed: int = 0) -> tuple[Batch, Any]:
    """The first sample of a task that fits, padded to `length`, and the sample encoded."""
    encoder, rng = Encoder(), random.Random(seed)
    while True:
        encoded = encoder.encode(task_makers()[task](rng))
        if len(encoded.ids) <= length:
            return pad([encoded], length), encoded


def alone(rows: list[list[int]], length: int, answers: list[int] | None = None) -> Batch:
    """Token rows padded to `length`, whose last `answers` tokens are targets."""
    sizes = answers or [0] * len(rows)
    samples = [
        Encoded(
            "made",
            np.array(ids, dtype=np.int32),
            np.arange(len(ids)) >= len(ids) - size,
            np.broadcast_to(np.arange(len(ids), dtype=np.int32), (3, len(ids))),
        )
        for ids, size in zip(rows, sizes, strict=True)
    ]
    return pad(samples, length)
