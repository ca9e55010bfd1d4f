"""Configuration members that would change the answer: only the implemented value is accepted."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ninfer.errors import ConfigError
from ninfer.log import get_logger

log = get_logger(__name__)

# Member and the values that mean what the decoder does. None is always "not given".
_TEXT: Final[Mapping[str, Sequence[Any]]] = {
    "attention_bias": (False,),
    "attn_output_gate": (True,),
    "decoder_sparse_step": (1,),
    "hidden_act": ("silu",),
    "layer_types": (),  # compared with the interval below
    "mlp_only_layers": ([],),
    "model_type": ("qwen3_5_text", "qwen3_5_moe_text"),
    "norm_topk_prob": (True,),
    "sliding_window": (),
    "tie_word_embeddings": (False,),
    "use_sliding_window": (False,),
}
_ROPE: Final[Mapping[str, Sequence[Any]]] = {
    "factor": (1,),
    "mrope_interleaved": (True,),
    "mrope_section": (),  # compared with the rotary width below
    "rope_type": ("default",),
    "type": ("default",),
}
_VISION: Final[Mapping[str, Sequence[Any]]] = {
    "hidden_act": ("gelu_pytorch_tanh",),
    "in_channels": (3,),
}
_ROOT: Final[Mapping[str, Sequence[Any]]] = {"tie_word_embeddings": (False,)}

# Sizes, read elsewhere.
_SIZES: Final = frozenset(
    [
        "addressable_vocab_size",
        "full_attention_interval",
        "head_dim",
        "hidden_size",
        "intermediate_size",
        "linear_conv_kernel_dim",
        "linear_key_head_dim",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_value_head_dim",
        "max_position_embeddings",
        "moe_intermediate_size",
        "num_attention_heads",
        "num_experts",
        "num_experts_per_tok",
        "num_hidden_layers",
        "num_key_value_heads",
        "partial_rotary_factor",
        "rms_norm_eps",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "shared_expert_intermediate_size",
        "vocab_size",
    ]
)
# Facts about training, files and other programs; none of them changes a forward pass.
_HARMLESS: Final = frozenset(
    [
        "_name_or_path",
        "architectures",
        "attention_dropout",
        "bos_token_id",
        "chunk_size_feed_forward",
        "dtype",
        "eos_token_id",
        "id2label",
        "initializer_range",
        "is_encoder_decoder",
        "label2id",
        "mamba_ssm_dtype",
        "mtp_num_hidden_layers",
        "mtp_use_dedicated_embeddings",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "pad_token_id",
        "problem_type",
        "return_dict",
        "router_aux_loss_coef",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    ]
)


def check_members(root: Mapping[str, Any]) -> None:
    """Refuse members whose value asks for another computation than the one implemented.

    Members of the text section that are neither known nor harmless are named in the log, since a
    future one could matter. Raises ConfigError naming member and value.
    """
    text = _section(root, "text_config")
    rope = _section(text, "rope_parameters")
    _check(root, _ROOT, "config")
    _check(text, _TEXT, "config.text_config")
    _check(rope, _ROPE, "config.text_config.rope_parameters")
    # The older name for a stretched context.
    _check(_section(text, "rope_scaling"), _ROPE, "config.text_config.rope_scaling")
    _check(_section(root, "vision_config"), _VISION, "config.vision_config")
    _check_layer_types(text)
    _check_sections(text, rope)
    unknown = sorted(set(text) - _SIZES - _HARMLESS - set(_TEXT))
    if unknown:
        log.warning("config.text_config has members unknown here: %s", ", ".join(unknown))


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}


def _check(values: Mapping[str, Any], allowed: Mapping[str, Sequence[Any]], path: str) -> None:
    for name, implemented in allowed.items():
        value = values.get(name)
        if value is not None and implemented and value not in implemented:
            shown = " or ".join(map(repr, implemented))
            raise ConfigError(f"{path}.{name} is {value!r}; only {shown} is implemented")


def _check_layer_types(text: Mapping[str, Any]) -> None:
    kinds, interval = text.get("layer_types"), text.get("full_attention_interval")
    if kinds is None or not isinstance(interval, int) or interval < 1:
        return
    if not isinstance(kinds, list) or len(kinds) != text.get("num_hidden_layers"):
        raise ConfigError("config.text_config.layer_types must name the kind of every layer")
    for layer, kind in enumerate(kinds):
        wanted = "linear_attention" if (layer + 1) % interval else "full_attention"
        if kind != wanted:
            raise ConfigError(
                f"config.text_config.layer_types[{layer}] is {kind!r}; full_attention_interval "
                f"{interval} makes it {wanted!r}"
            )


def _check_sections(text: Mapping[str, Any], rope: Mapping[str, Any]) -> None:
    """The axis of rotary pair i is i mod 3, so the sections follow from the rotary width."""
    sections, factor = rope.get("mrope_section"), rope.get("partial_rotary_factor")
    head_dim = text.get("head_dim")
    if sections is None or not isinstance(head_dim, int) or not isinstance(factor, int | float):
        return
    pairs = round(head_dim * factor) // 2
    wanted = [len(range(axis, pairs, 3)) for axis in range(3)]
    if sections != wanted:
        raise ConfigError(
            f"config.text_config.rope_parameters.mrope_section is {sections!r}; {pairs} interleaved"
            f" pairs make it {wanted}"
        )
