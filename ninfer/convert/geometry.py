"""Geometries for synthetic artifacts: a registered model's shape at a small scale."""

from collections.abc import Mapping
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
}

_VISION: Final[Mapping[str, Any]] = {
    "depth": 2,
    "hidden_size": 144,
    "intermediate_size": 288,
    "num_heads": 2,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "num_position_embeddings": 256,
}

_DFLASH: Final[Mapping[str, Any]] = {
    "num_hidden_layers": 2,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 128,
    "sliding_window": 4096,
    "block_size": 16,
}

FAMILIES: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    "qwen3.6-27b": _DENSE_TEXT,
    "qwen3.6-35b-a3b": _MOE_TEXT,
}
SCALES: Final = ("micro", "tiny")


# Like the real checkpoints, the embedding has rows beyond the last token of the tokenizer.
SPARE_ROWS: Final = 8


def small_config_fields(like: str, scale: str, overrides: Mapping[str, int]) -> dict[str, Any]:
    """Configuration fields, Hugging Face names, of a small relative of `like`.

    `overrides` replaces members of the text configuration. Raises UsageError for an unknown
    family, scale or member.
    """
    if like not in FAMILIES:
        raise UsageError(f"--like {like}: must be one of {', '.join(FAMILIES)}")
    if scale not in SCALES:
        raise UsageError(f"--scale {scale}: must be one of {', '.join(SCALES)}")
    text = {**_REAL_HEADS, **FAMILIES[like][scale]}
    for name, value in overrides.items():
        if not isinstance(text.get(name), int):
            known = ", ".join(sorted(key for key in text if isinstance(text[key], int)))
            raise UsageError(f"--set {name}={value}: unknown size; known: {known}")
        text[name] = value
    text["addressable_vocab_size"] = text["vocab_size"] - SPARE_ROWS
    fields: dict[str, Any] = {
        "text_config": text,
        "mtp": True,
        "draft_head_rows": text["vocab_size"] // 2,
        "vision_config": {**_VISION, "out_hidden_size": text["hidden_size"]},
    }
    if "num_experts" in text:
        middle = text["num_hidden_layers"] // 2
        fields["dflash_config"] = {
            **_DFLASH,
            "target_layer_ids": [0, middle],
            "mask_token_id": text["addressable_vocab_size"],
        }
    return fields
