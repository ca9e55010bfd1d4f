"""Logits of a converted artifact, computed as the engine would."""

from pathlib import Path

import torch
from checkpoints import ADDRESSABLE
from torch import Tensor

from ninfer.engine.loader import load_model
from ninfer.engine.options import EngineOptions
from ninfer.engine.residency import Residency
from ninfer.models.qwen3_6 import decode, logits
from ninfer.runtime import RuntimeConfig, pages_for
from ninfer.runtime.batch import Piece, build_batch
from ninfer.runtime.caches import allocate_caches
from ninfer.runtime.sequence import Sequence

TOKENS = [(7 * i * i + 3 * i + 1) % ADDRESSABLE for i in range(70)]


@torch.inference_mode()
def artifact_logits(path: Path, *, decoded: bool, tokens: list[int] = TOKENS) -> Tensor:
    """Logits of every position, computed by the model of the artifact in float32."""
    cpu = torch.device("cpu")
    residency = Residency(cpu, torch.float32, decoded)
    options = EngineOptions(artifact=path)
    model = load_model(options, lambda config: residency, lambda name, done, total: None)
    pages = pages_for(128)
    runtime = RuntimeConfig(cpu, torch.float32, "fp32", 128, pages, 1, 128)
    caches = allocate_caches(model.config, runtime)
    sequence = Sequence(tokens, len(tokens), None, list(range(pages)), 0)
    batch = build_batch([Piece(sequence, len(tokens), True)], cpu)
    text = model.config.text
    hidden, _ = decode(model.weights, text, batch, caches, dtype=torch.float32)
    return logits(model.weights, hidden, torch.arange(hidden.shape[0]))
