"""Qwen3.6 family: dense and MoE hybrid decoders."""

from typing import TYPE_CHECKING

from ninfer.lazy import lazy_exports

if TYPE_CHECKING:
    from ninfer.models.qwen3_6.decoder import decode, logits
    from ninfer.models.qwen3_6.inventory import FRONTEND_RESOURCES, inventory
    from ninfer.models.qwen3_6.presets import sampling_preset
    from ninfer.models.qwen3_6.recipe import recipe_for
    from ninfer.models.qwen3_6.vision import encode_media
    from ninfer.models.qwen3_6.vision_weights import VisionWeights, bind_vision
    from ninfer.models.qwen3_6.weights import TextWeights, WeightSource, bind_text

__all__ = [
    "FRONTEND_RESOURCES",
    "TextWeights",
    "VisionWeights",
    "WeightSource",
    "bind_text",
    "bind_vision",
    "decode",
    "encode_media",
    "inventory",
    "logits",
    "recipe_for",
    "sampling_preset",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "FRONTEND_RESOURCES": "ninfer.models.qwen3_6.inventory",
        "TextWeights": "ninfer.models.qwen3_6.weights",
        "VisionWeights": "ninfer.models.qwen3_6.vision_weights",
        "WeightSource": "ninfer.models.qwen3_6.weights",
        "bind_text": "ninfer.models.qwen3_6.weights",
        "bind_vision": "ninfer.models.qwen3_6.vision_weights",
        "decode": "ninfer.models.qwen3_6.decoder",
        "encode_media": "ninfer.models.qwen3_6.vision",
        "inventory": "ninfer.models.qwen3_6.inventory",
        "logits": "ninfer.models.qwen3_6.decoder",
        "recipe_for": "ninfer.models.qwen3_6.recipe",
        "sampling_preset": "ninfer.models.qwen3_6.presets",
    },
)
