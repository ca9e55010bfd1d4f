"""Geometries for synthetic artifacts: a registered model's shape at a small scale or whole."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ninfer.errors import UsageError

# Head sizes, rotary share and convolution width stay those of the real checkpoints, so that the
# same code paths and kernels run; widths, depth and vocabulary shrink.
_REAL_HEADS: Final[Mapping[str, Any]] = {
    "head_dim": 256,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 262_144,
    "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25},
}
# Sizes of the published vocabulary: rows, and ids that the tokenizer can make.
_REAL_VOCABULARY: Final[Mapping[str, Any]] = {
    "vocab_size": 248_320,
    "addressable_vocab_size": 248_077,
}

_DENSE_TEXT: Final[Mapping[str, Mapping[str, Any]]] = {
    "micro": {
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "intermediate_size": 256,
        "vocab_size": 512,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 3,
    },
    "tiny": {
        "hidden_size": 384,
        "num_hidden_layers": 8,
        "intermediate_size": 1024,
        "vocab_size": 2048,
        "num_attention_heads": 6,
        "num_key_value_heads": 1,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 6,
    },
    "full": {
        **_REAL_VOCABULARY,
        "hidden_size": 5120,
        "num_hidden_layers": 64,
        "intermediate_size": 17_408,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
    },
}

_MOE_TEXT: Final[Mapping[str, Mapping[str, Any]]] = {
    "micro": {
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "vocab_size": 512,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 2,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64,
    },
    "tiny": {
        "hidden_size": 256,
        "num_hidden_layers": 8,
        "vocab_size": 2048,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "num_experts": 32,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64,
    },
    "full": {
        **_REAL_VOCABULARY,
        "hidden_size": 2048,
        "num_hidden_layers": 40,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
    },
}

_SMALL_VISION: Final[Mapping[str, Any]] = {
    "depth": 2,
    "hidden_size": 144,
    "intermediate_size": 288,
    "num_heads": 2,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "num_position_embeddings": 256,
}
_FULL_VISION: Final[Mapping[str, Any]] = {
    **_SMALL_VISION,
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "num_position_embeddings": 2304,
}

# Target layers of the small drafters are filled in from the depth of the text model.
_SMALL_DFLASH: Final[Mapping[str, Any]] = {
    "num_hidden_layers": 2,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 128,
    "sliding_window": 4096,
    "block_size": 16,
}
_FULL_DFLASH: Final[Mapping[str, Any]] = {
    **_SMALL_DFLASH,
    "num_hidden_layers": 6,
    "intermediate_size": 6144,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "target_layer_ids": [1, 6, 11, 16, 22, 27, 32, 37],
}
_SMALL_DFLASH2: Final[Mapping[str, Any]] = {
    "num_hidden_layers": 2,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 128,
    "sliding_window": 2048,
    "conv_kernel_size": 2,
    "conv_group_size": 16,
    "selector_rank": 32,
    "selector_top_k": 16,
}
_FULL_DFLASH2: Final[Mapping[str, Any]] = {
    **_SMALL_DFLASH2,
    "num_hidden_layers": 5,
    "intermediate_size": 17_408,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "target_layer_ids": [5, 19, 33, 47, 61],
    "mask_token_id": 248_070,
    "selector_rank": 256,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A model whose shape can be taken: sizes of its text part by scale, and what it belongs to."""

    model_id: str
    weights_id: str
    text: Mapping[str, Mapping[str, Any]]
    generation: str = "qwen3.6"


SHAPES: Final[Mapping[str, Shape]] = {
    "qwen3.6-27b": Shape("qwen3.6-27b", "groupwise-int", _DENSE_TEXT),
    "qwen3.6-27b/nvfp4": Shape("qwen3.6-27b", "nvfp4", _DENSE_TEXT),
    "qwen3.6-35b-a3b": Shape("qwen3.6-35b-a3b", "groupwise-int", _MOE_TEXT),
    "qwen3.8-27b": Shape("qwen3.8-27b", "groupwise-int", _DENSE_TEXT, "qwen3.8"),
    "qwen3.8-27b/nvfp4": Shape("qwen3.8-27b", "nvfp4", _DENSE_TEXT, "qwen3.8"),
}
SCALES: Final = ("micro", "tiny", "full")
DRAFTERS: Final = ("dflash2",)
# Like the real checkpoints, the embedding has rows beyond the last token of the tokenizer.
SPARE_ROWS: Final = 8


def config_fields(
    like: str, scale: str, overrides: Mapping[str, int], drafter: str | None = None
) -> dict[str, Any]:
    """Configuration fields, Hugging Face names, of a relative of `like` at `scale`.

    `overrides` replaces members of the text configuration; `drafter` adds one of DRAFTERS. Raises
    UsageError for an unknown model, scale, drafter or member.
    """
    for flag, value, known in (("like", like, SHAPES), ("scale", scale, SCALES)):
        if value not in known:
            raise UsageError(f"--{flag} {value}: must be one of {', '.join(known)}")
    if drafter is not None and drafter not in DRAFTERS:
        raise UsageError(f"--drafter {drafter}: must be one of {', '.join(DRAFTERS)}")
    shape, full = SHAPES[like], scale == "full"
    text = _text_fields(shape.text[scale], overrides)
    vision = _FULL_VISION if full else _SMALL_VISION
    fields: dict[str, Any] = {
        "generation": shape.generation,
        "text_config": text,
        "mtp": True,
        "draft_head_rows": 131_072 if full else text["vocab_size"] // 2,
        "vision_config": {**vision, "out_hidden_size": text["hidden_size"]},
    }
    if "num_experts" in text:
        fields["dflash_config"] = _drafter_fields(_FULL_DFLASH if full else _SMALL_DFLASH, text)
    if drafter == "dflash2":
        fields["dflash2_config"] = _drafter_fields(_FULL_DFLASH2 if full else _SMALL_DFLASH2, text)
    return fields


def _text_fields(sizes: Mapping[str, Any], overrides: Mapping[str, int]) -> dict[str, Any]:
    text = {**_REAL_HEADS, **sizes}
    for name, value in overrides.items():
        if not isinstance(text.get(name), int):
            known = ", ".join(sorted(key for key in text if isinstance(text[key], int)))
            raise UsageError(f"--set {name}={value}: unknown size; known: {known}")
        text[name] = value
    return {"addressable_vocab_size": text["vocab_size"] - SPARE_ROWS, **text}


def _drafter_fields(sizes: Mapping[str, Any], text: Mapping[str, Any]) -> dict[str, Any]:
    """A drafter's sizes; unless given, it reads two layers and masks with a spare row."""
    return {
        "target_layer_ids": [0, text["num_hidden_layers"] // 2],
        "mask_token_id": text["addressable_vocab_size"],
        **sizes,
    }
