"""Sizes of the demo checkpoints, as Hugging Face configuration members.

Head sizes, the share of query to key heads, rotary dims and MRoPE sections, convolution width and
the layer pattern are those of Qwen3.6-27B (`tiny`) and Qwen3.6-35B-A3B (`tiny-moe`), so that the
same kernels run; widths, depth, experts and vocabulary shrink until an artifact fits in 12 MiB.
"""

from collections.abc import Mapping
from typing import Any, Final

# Ids that the tokenizer can make, and rows of the embedding; the first spare row is the mask of
# the block drafter.
ADDRESSABLE: Final = 2040
VOCAB_ROWS: Final = 2048

_HEADS: Final[Mapping[str, Any]] = {
    "head_dim": 256,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 32_768,
    "vocab_size": VOCAB_ROWS,
    "hidden_act": "silu",
    "attn_output_gate": True,
    "tie_word_embeddings": False,
    "mtp_num_hidden_layers": 1,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
        "mrope_section": [11, 11, 10],
        "mrope_interleaved": True,
    },
}

TINY: Final[Mapping[str, Any]] = {
    **_HEADS,
    "model_type": "qwen3_5_text",
    "hidden_size": 256,
    "num_hidden_layers": 8,
    "intermediate_size": 768,
    "num_attention_heads": 6,
    "num_key_value_heads": 1,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
}
TINY_VISION: Final[Mapping[str, Any]] = {
    "depth": 4,
    "hidden_size": 144,
    "intermediate_size": 432,
    "num_heads": 2,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "num_position_embeddings": 256,
    "out_hidden_size": TINY["hidden_size"],
    "hidden_act": "gelu_pytorch_tanh",
}
TINY_MOE: Final[Mapping[str, Any]] = {
    **_HEADS,
    "model_type": "qwen3_5_moe_text",
    "hidden_size": 128,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "num_experts": 16,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 128,
    "shared_expert_intermediate_size": 128,
}
# The block drafter of `tiny-moe`: two layers, the first slides, the last sees all.
DFLASH: Final[Mapping[str, Any]] = {
    "num_hidden_layers": 2,
    "hidden_size": TINY_MOE["hidden_size"],
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 128,
    "sliding_window": 4096,
    "block_size": 16,
    "target_layer_ids": [1, 4, 6],
    "mask_token_id": ADDRESSABLE,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e7,
}
DRAFT_HEAD_ROWS: Final = 1024


def config_of(name: str) -> dict[str, Any]:
    """The config.json of checkpoint `name`, "tiny" or "tiny-moe"."""
    if name == "tiny":
        return {
            "architectures": ["Qwen3_5ForConditionalGeneration"],
            "model_type": "qwen3_5",
            "tie_word_embeddings": False,
            "text_config": dict(TINY),
            "vision_config": dict(TINY_VISION),
        }
    if name == "tiny-moe":
        return {
            "architectures": ["Qwen3_5MoeForConditionalGeneration"],
            "model_type": "qwen3_5_moe",
            "tie_word_embeddings": False,
            "text_config": dict(TINY_MOE),
        }
    raise ValueError(f"{name!r} is not a demo checkpoint; known: tiny, tiny-moe")
