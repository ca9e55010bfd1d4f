"""Checkpoint folders in the Hugging Face format, in shards that are easy to carry."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from recipes.tiny.encode import FILES, TOKENIZER_FOLDER
from recipes.tiny.geometry import DFLASH

SHARD_BYTES: Final = 15 << 20
# Kept in float32, as the published checkpoints do.
_WIDE: Final = ("A_log", "dt_bias")


def save_checkpoint(model: nn.Module, config: Mapping[str, Any], folder: Path) -> None:
    """Write weights as bfloat16, config.json and the tokenizer's files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    for name in FILES:
        shutil.copy(TOKENIZER_FOLDER / name, folder / name)
    save_weights(model.state_dict(), folder)


def save_drafter(
    state: Mapping[str, Tensor], folder: Path, sizes: Mapping[str, Any] = DFLASH
) -> None:
    """Write the block drafter as a checkpoint of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(sizes), indent=2) + "\n", "utf-8")
    save_weights(state, folder)


def save_weights(state: Mapping[str, Tensor], folder: Path) -> None:
    """Write tensors in shards of at most SHARD_BYTES, with an index."""
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in state.items():
        is_wide = name.endswith(_WIDE)
        stored = tensor.detach().to("cpu", torch.float32 if is_wide else torch.bfloat16)
        size += stored.nbytes
        if size > SHARD_BYTES:
            shards.append({})
            size = stored.nbytes
        shards[-1][name] = stored.contiguous()
    index = {}
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        index.update(dict.fromkeys(shard, file))
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": index}, indent=1) + "\n", encoding="utf-8"
    )


def load_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint folder."""
    index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
    state: dict[str, Tensor] = {}
    for file in sorted(set(index["weight_map"].values())):
        state.update(load_file(folder / file))
    return state
