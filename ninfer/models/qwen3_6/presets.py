"""Sampling defaults of the Qwen3.6 family by checkpoint kind and thinking mode."""

from ninfer.models.config import ModelConfig
from ninfer.request import SamplingParams


def sampling_preset(config: ModelConfig, *, thinking: bool) -> SamplingParams:
    """The defaults that the checkpoints' authors recommend; options and requests override them."""
    if not thinking:
        return SamplingParams(temperature=0.7, top_p=0.80, top_k=20, presence_penalty=1.5)
    presence = 1.5 if config.text.moe else 0.0
    return SamplingParams(temperature=1.0, top_p=0.95, top_k=20, presence_penalty=presence)
