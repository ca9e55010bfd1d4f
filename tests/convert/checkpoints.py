"""Small Hugging Face checkpoints, made with transformers and by hand, for tests of conversion."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import (
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeConfig,
    Qwen3_5MoeForConditionalGeneration,
)

from ninfer.convert import ConvertOptions
from ninfer.convert.byte_tokenizer import build_tokenizer

VOCAB_ROWS = 512
ADDRESSABLE = 504
DRAFT_ROWS = 256
HIDDEN = 128
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 64
EXPERTS, EXPERT_WIDTH = 8, 32

TEXT = {
    "vocab_size": VOCAB_ROWS,
    "hidden_size": HIDDEN,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "mtp_num_hidden_layers": 1,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
        "mrope_section": [3, 3, 2],
        "mrope_interleaved": True,
    },
}
MOE = {
    "num_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": EXPERT_WIDTH,
    "shared_expert_intermediate_size": 32,
}
VISION = {
    "depth": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_heads": 4,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "out_hidden_size": HIDDEN,
    "num_position_embeddings": 64,
}


@dataclass(frozen=True)
class Made:
    """A checkpoint folder, the model it was saved from, its counts and its artifact."""

    folder: Path
    model: torch.nn.Module
    counts: np.ndarray
    options: ConvertOptions
    artifact: Path
    moe: bool


def reference_model(*, moe: bool) -> torch.nn.Module:
    """A random bfloat16 model with vision whose norms and decay rates are not at their start."""
    if moe:
        config = Qwen3_5MoeConfig(text_config={**TEXT, **MOE}, vision_config=VISION)
        model = Qwen3_5MoeForConditionalGeneration(config)
    else:
        config = Qwen3_5Config(text_config=TEXT, vision_config=VISION)
        model = Qwen3_5ForConditionalGeneration(config)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("A_log"):
                parameter.copy_(noise)
            elif parameter.dim() == 1:
                parameter.add_(noise * 0.2)
            else:
                width = parameter[0].numel() if "conv1d" in name else parameter.shape[-1]
                strength = 0.3 if "layers" in name else 1.0
                parameter.copy_(noise * strength * width**-0.5)
    return model.to(torch.bfloat16).eval()


def mtp_tensors(*, moe: bool) -> dict[str, Tensor]:
    """The MTP layer, which transformers does not know, under the names of the checkpoints."""
    layer = "mtp.layers.0"
    shapes = {
        "mtp.fc.weight": (HIDDEN, 2 * HIDDEN),
        "mtp.pre_fc_norm_embedding.weight": (HIDDEN,),
        "mtp.pre_fc_norm_hidden.weight": (HIDDEN,),
        "mtp.norm.weight": (HIDDEN,),
        f"{layer}.input_layernorm.weight": (HIDDEN,),
        f"{layer}.post_attention_layernorm.weight": (HIDDEN,),
        f"{layer}.self_attn.q_proj.weight": (2 * HEADS * HEAD_DIM, HIDDEN),
        f"{layer}.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        f"{layer}.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        f"{layer}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
        f"{layer}.self_attn.q_norm.weight": (HEAD_DIM,),
        f"{layer}.self_attn.k_norm.weight": (HEAD_DIM,),
    }
    if moe:
        shared = f"{layer}.mlp.shared_expert"
        shapes |= {
            f"{layer}.mlp.gate.weight": (EXPERTS, HIDDEN),
            f"{layer}.mlp.shared_expert_gate.weight": (1, HIDDEN),
            f"{layer}.mlp.experts.gate_up_proj": (EXPERTS, 2 * EXPERT_WIDTH, HIDDEN),
            f"{layer}.mlp.experts.down_proj": (EXPERTS, HIDDEN, EXPERT_WIDTH),
            f"{shared}.gate_proj.weight": (32, HIDDEN),
            f"{shared}.up_proj.weight": (32, HIDDEN),
            f"{shared}.down_proj.weight": (HIDDEN, 32),
        }
    else:
        shapes |= {
            f"{layer}.mlp.gate_proj.weight": (256, HIDDEN),
            f"{layer}.mlp.up_proj.weight": (256, HIDDEN),
            f"{layer}.mlp.down_proj.weight": (HIDDEN, 256),
        }
    return random_tensors(shapes, seed=11)


def random_tensors(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, Tensor]:
    """bfloat16 tensors of these shapes."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator).mul(0.1).to(torch.bfloat16)
        for name, shape in shapes.items()
    }


def write_text_files(folder: Path) -> None:
    """A tokenizer of 504 ids and the other files that go into an artifact unchanged."""
    for name, data in build_tokenizer(ADDRESSABLE).items():
        (folder / name.rsplit("/", 1)[-1]).write_bytes(data)
    for name in ("preprocessor_config.json", "video_preprocessor_config.json"):
        (folder / name).write_text(json.dumps({"patch_size": 16}))


def write_checkpoint(folder: Path, *, moe: bool, mtp: bool = True) -> torch.nn.Module:
    """A whole checkpoint in several shards; the experts of the text layers are split."""
    model = reference_model(moe=moe)
    model.save_pretrained(folder, max_shard_size="300KB")
    if mtp:
        add_shard(folder, mtp_tensors(moe=moe))
    write_text_files(folder)
    return model


def add_shard(folder: Path, tensors: dict[str, Tensor], name: str = "extra.safetensors") -> None:
    """One more shard, and its tensors in the index when there is one."""
    save_file(tensors, folder / name)
    index = folder / "model.safetensors.index.json"
    if index.exists():
        document = json.loads(index.read_text())
        document["weight_map"].update(dict.fromkeys(tensors, name))
        index.write_text(json.dumps(document))


def all_tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a folder, copied."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as shard:
            for name in shard.keys():  # noqa: SIM118  # the shard is no mapping
                found[name] = shard.get_tensor(name).clone()
    return found


def rewrite(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Replace all shards by one that holds these tensors."""
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    save_file(
        {name: value.contiguous() for name, value in tensors.items()}, folder / "model.safetensors"
    )


def fuse_experts(tensors: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """The same checkpoint with the experts of each text layer in two tensors."""
    found = {
        name: value
        for name, value in tensors.items()
        if ".layers." not in name or ".mlp.experts." not in name or name.startswith("mtp.")
    }
    for layer in range(layers):
        source = f"model.language_model.layers.{layer}.mlp.experts"
        each = [
            {part: tensors[f"{source}.{e}.{part}_proj.weight"] for part in ("gate", "up", "down")}
            for e in range(EXPERTS)
        ]
        found[f"{source}.gate_up_proj"] = torch.stack(
            [torch.cat([parts["gate"], parts["up"]]) for parts in each]
        )
        found[f"{source}.down_proj"] = torch.stack([parts["down"] for parts in each])
    return found


def write_counts(path: Path) -> np.ndarray:
    """Two rows of counts with many ties; only the first row counts."""
    generator = np.random.default_rng(5)
    counts = generator.integers(0, 40, size=(2, VOCAB_ROWS)).astype("<i8")
    counts.tofile(path)
    return counts[0]
