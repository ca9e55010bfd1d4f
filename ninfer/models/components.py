"""Components of a v3 directory: their Hugging Face style configurations to sizes, and back."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ninfer.artifact.model_map import Component, ModelMap, Proposal
from ninfer.errors import ConfigError
from ninfer.log import get_logger
from ninfer.models.config import (
    GENERATIONS,
    Dflash2Config,
    DflashConfig,
    ModelConfig,
    TextConfig,
    VisionConfig,
    model_config_from_fields,
)

log = get_logger(__name__)

ARCHITECTURES: Final = (
    "Qwen3_5ForCausalLM",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForCausalLM",
    "Qwen3_5MoeForConditionalGeneration",
)
MODEL_TYPES: Final = ("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")
# Component id -> member of a whole configuration that holds its sizes.
_OPTIONAL: Final = {
    "vision": "vision_config",
    "dflash": "dflash_config",
    "dflash2": "dflash2_config",
}
_ATTENTION: Final = "full_attention"


def config_from_components(model_map: ModelMap, name: str) -> ModelConfig:
    """Sizes of the model; `name` is its public id, which tells the release.

    Only the text component has to be understood: another whose sizes cannot be read is reported in
    the log and left out. Raises ConfigError for an architecture that this version does not run, and
    for sizes of the text component that are missing or contradict each other.
    """
    text = model_map.components["text"]
    _check_architecture(text.config)
    fields: dict[str, Any] = {
        "text_config": _text_fields(text.config),
        "mtp": "mtp" in model_map.components,
        "draft_head_rows": text.proposal.rows if text.proposal else 0,
        "generation": next((known for known in GENERATIONS if known in name), GENERATIONS[0]),
    }
    config = model_config_from_fields(fields)
    for component, member in _OPTIONAL.items():
        if component in model_map.components:
            sizes = _nested(model_map.components[component].config, member)
            try:
                config = model_config_from_fields({**fields, member: sizes})
            except ConfigError as error:
                log.warning("component %r is skipped: %s", component, error)
                continue
            fields[member] = sizes
    return config


def components_of(config: ModelConfig, resources: Mapping[str, str]) -> dict[str, Component]:
    """Components that state these sizes; `resources` gives the object id of each role."""
    proposal = Proposal(config.draft_head_rows)
    visual = {role: name for role, name in resources.items() if "preprocessor" in role}
    textual = {role: name for role, name in resources.items() if role not in visual}
    if config.vision is None:
        textual, visual = dict(resources), {}
    found = {"text": Component(_text_config(config.text), None, textual, proposal)}
    if config.mtp:
        found["mtp"] = Component({"num_hidden_layers": 1}, "text")
    if config.vision is not None:
        found["vision"] = Component(_vision_config(config.vision), "text", visual)
    if config.dflash is not None:
        found["dflash"] = Component(_dflash_config(config.dflash), "text")
    if config.dflash2 is not None:
        found["dflash2"] = Component(_dflash2_config(config.dflash2), "text")
    return found


def with_addressable(config: ModelConfig, tokens: int) -> ModelConfig:
    """The configuration with at most `tokens` addressable ids.

    Hugging Face configurations count the rows of the embedding, which has more than the tokenizer.
    """
    addressable = min(config.text.addressable, tokens)
    return replace(config, text=replace(config.text, addressable=addressable))


def _check_architecture(config: Mapping[str, Any]) -> None:
    named = config.get("architectures") or [config.get("model_type")]
    if not isinstance(named, list) or not any(
        name in ARCHITECTURES or name in MODEL_TYPES for name in named
    ):
        raise ConfigError(
            f"component 'text' has architecture {named}; this version runs"
            f" {', '.join(ARCHITECTURES)}"
        )


def _nested(config: Mapping[str, Any], member: str) -> dict[str, Any]:
    """A configuration whose sizes may lie in a member of their own."""
    inner = config.get(member)
    return {**config, **inner} if isinstance(inner, Mapping) else dict(config)


def _text_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    inner = config.get("text_config")
    fields = dict(inner if isinstance(inner, Mapping) else config)
    if fields.get("full_attention_interval") is None:
        fields["full_attention_interval"] = _interval(fields.get("layer_types"))
    rope = fields.get("rope_parameters")
    if isinstance(rope, Mapping) or rope is None:
        old = {name: fields.get(name) for name in ("rope_theta", "partial_rotary_factor")}
        fields["rope_parameters"] = {**old, **(rope or {})}
    return fields


def _interval(kinds: object) -> int | None:
    """Where a list of layer kinds first has full attention; None when there is no list."""
    if not isinstance(kinds, list) or _ATTENTION not in kinds:
        return None
    return kinds.index(_ATTENTION) + 1


def _text_config(text: TextConfig) -> dict[str, Any]:
    moe = text.moe
    sizes: dict[str, Any] = (
        {"intermediate_size": text.mlp_width}
        if moe is None
        else {
            "num_experts": moe.experts,
            "num_experts_per_tok": moe.top_k,
            "moe_intermediate_size": moe.expert_width,
            "shared_expert_intermediate_size": moe.shared_width,
        }
    )
    attention, gdn = text.attention, text.gdn
    return {
        "architectures": ["Qwen3_5ForCausalLM" if moe is None else "Qwen3_5MoeForCausalLM"],
        "model_type": "qwen3_5_text" if moe is None else "qwen3_5_moe_text",
        "vocab_size": text.vocab_rows,
        "addressable_vocab_size": text.addressable,
        "hidden_size": text.hidden,
        "num_hidden_layers": text.layers,
        "full_attention_interval": text.attention_interval,
        **sizes,
        "rms_norm_eps": text.eps,
        "max_position_embeddings": text.context,
        "num_attention_heads": attention.query_heads,
        "num_key_value_heads": attention.kv_heads,
        "head_dim": attention.head_dim,
        "rope_parameters": {
            "rope_theta": attention.rope_theta,
            "partial_rotary_factor": attention.rotary_dim / attention.head_dim,
        },
        "linear_num_key_heads": gdn.key_heads,
        "linear_num_value_heads": gdn.value_heads,
        "linear_key_head_dim": gdn.key_dim,
        "linear_value_head_dim": gdn.value_dim,
        "linear_conv_kernel_dim": gdn.conv_width,
    }


def _vision_config(vision: VisionConfig) -> dict[str, Any]:
    return {
        "depth": vision.depth,
        "hidden_size": vision.hidden,
        "intermediate_size": vision.mlp_width,
        "num_heads": vision.heads,
        "patch_size": vision.patch,
        "temporal_patch_size": vision.temporal_patch,
        "spatial_merge_size": vision.merge,
        "num_position_embeddings": vision.positions,
        "out_hidden_size": vision.output,
    }


def _drafter_config(drafter: DflashConfig | Dflash2Config) -> dict[str, Any]:
    return {
        "num_hidden_layers": drafter.layers,
        "intermediate_size": drafter.mlp_width,
        "num_attention_heads": drafter.query_heads,
        "num_key_value_heads": drafter.kv_heads,
        "head_dim": drafter.head_dim,
        "target_layer_ids": list(drafter.target_layers),
        "sliding_window": drafter.window,
        "mask_token_id": drafter.mask_id,
    }


def _dflash_config(drafter: DflashConfig) -> dict[str, Any]:
    return {**_drafter_config(drafter), "block_size": drafter.block}


def _dflash2_config(drafter: Dflash2Config) -> dict[str, Any]:
    return {
        **_drafter_config(drafter),
        "conv_kernel_size": drafter.conv_taps,
        "conv_group_size": drafter.conv_group,
        "selector_rank": drafter.selector_rank,
        "selector_top_k": drafter.selector_top_k,
    }
