"""Random small transformers models with a vision tower, and their weights as our views."""

import torch
from hf_model import MOE, ROPE, TEXT, bind_state
from torch import Tensor
from transformers import (
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeConfig,
    Qwen3_5MoeForConditionalGeneration,
)

from ninfer.models.config import ModelConfig, model_config_from_fields
from ninfer.models.qwen3_6 import TextWeights, VisionWeights, bind_vision, recipe_for

VISION = {
    "depth": 3,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_heads": 4,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "num_position_embeddings": 64,
    "out_hidden_size": 128,
}
IMAGE, VIDEO, START, END = 500, 501, 502, 503


def reference_model(*, moe: bool) -> torch.nn.Module:
    """A random float32 model whose norms, biases and decay rates are not at initial values.

    As in `hf_model`, branches are weaker than the residual stream.
    """
    text = {**TEXT, **(MOE if moe else {}), "rope_parameters": {**ROPE, "mrope_section": [3, 3, 2]}}
    build = Qwen3_5MoeForConditionalGeneration if moe else Qwen3_5ForConditionalGeneration
    model = build(
        (Qwen3_5MoeConfig if moe else Qwen3_5Config)(
            text_config=text,
            vision_config=VISION,
            image_token_id=IMAGE,
            video_token_id=VIDEO,
            vision_start_token_id=START,
            vision_end_token_id=END,
            tie_word_embeddings=False,
        )
    )
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("A_log"):
                parameter.copy_(noise)
            elif parameter.dim() == 1:
                parameter.add_(noise * 0.2)
            elif name.endswith("pos_embed.weight"):
                parameter.copy_(noise)
            else:
                first = parameter[0].numel()
                width = first if "conv1d" in name or "patch_embed" in name else parameter.shape[-1]
                strength = 0.3 if "layers" in name or "blocks" in name else 1.0
                parameter.copy_(noise * strength * width**-0.5)
    return model.eval()


def our_config(*, moe: bool) -> ModelConfig:
    """The same sizes, read by our own configuration reader."""
    text = {**TEXT, **(MOE if moe else {}), "rope_parameters": ROPE}
    return model_config_from_fields({"text_config": text, "vision_config": VISION})


def our_weights(model: torch.nn.Module, config: ModelConfig) -> tuple[TextWeights, VisionWeights]:
    """Bind the reference model's tensors under the names of an artifact."""
    state = model.state_dict()
    text = {
        name.removeprefix("model.language_model."): value
        for name, value in state.items()
        if not name.startswith("model.visual.")
    }
    recipe = recipe_for(config, "groupwise-int")
    vision = bind_vision(lambda name: _vision_tensor(state, name), config, recipe)
    return bind_state(text, config), vision


_NAMES = {
    "vision/patch_embedding": "patch_embed.proj.weight",
    "vision/patch_embedding_bias": "patch_embed.proj.bias",
    "vision/position_embedding": "pos_embed.weight",
    "attention/qkv": "attn.qkv.weight",
    "attention/qkv_bias": "attn.qkv.bias",
    "attention/output": "attn.proj.weight",
    "attention/output_bias": "attn.proj.bias",
    "mlp/fc1": "mlp.linear_fc1.weight",
    "mlp/fc1_bias": "mlp.linear_fc1.bias",
    "mlp/fc2": "mlp.linear_fc2.weight",
    "mlp/fc2_bias": "mlp.linear_fc2.bias",
    "fc1": "linear_fc1.weight",
    "fc1_bias": "linear_fc1.bias",
    "fc2": "linear_fc2.weight",
    "fc2_bias": "linear_fc2.bias",
}


def _vision_tensor(state: dict[str, Tensor], name: str) -> Tensor:
    if name in _NAMES:
        key = _NAMES[name]
    elif name.startswith("vision/merger/"):
        rest = name.removeprefix("vision/merger/")
        key = "merger." + _NAMES.get(rest, rest.replace("/", "."))
    else:
        _, _, block, rest = name.split("/", 3)
        key = f"blocks.{block}." + _NAMES.get(rest, rest.replace("/", "."))
    value = state[f"model.visual.{key}"]
    return value.flatten(1) if key == "patch_embed.proj.weight" else value
