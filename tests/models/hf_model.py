"""Random small transformers models, and their weights as our views, for comparisons of logits."""

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import (
    Qwen3_5ForCausalLM,
    Qwen3_5MoeForCausalLM,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
)

from ninfer.models.config import ModelConfig, model_config_from_fields
from ninfer.models.qwen3_6 import TextWeights, bind_text, recipe_for

ROPE = {
    "rope_type": "default",
    "rope_theta": 1e7,
    "partial_rotary_factor": 0.25,
    "mrope_interleaved": True,
}
# Two key heads under four value heads and two KV heads under four query heads: grouping matters.
TEXT = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
MOE = {
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}


def reference_model(*, moe: bool, rope: dict | None = None) -> torch.nn.Module:
    """A random float32 model whose norms and decay rates are not at their initial values.

    Branches are weaker than the residual stream. At full strength eight random layers turn
    one rounding into a difference near 1e-3, for transformers against its own float64 run too.
    """
    fields = {**TEXT, "rope_parameters": {**(rope or ROPE), "mrope_section": [3, 3, 2]}}
    if moe:
        model = Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**{**fields, **MOE}))
    else:
        model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**fields))
    generator = torch.Generator().manual_seed(7)
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
    return model.eval()


def our_config(*, moe: bool) -> ModelConfig:
    """The same sizes, read by our own configuration reader."""
    text = {**TEXT, **(MOE if moe else {}), "rope_parameters": ROPE}
    return model_config_from_fields({"text_config": text})


def our_weights(model: torch.nn.Module, config: ModelConfig) -> TextWeights:
    """Bind the reference model's tensors under the names of an artifact."""
    state = {name.removeprefix("model."): value for name, value in model.state_dict().items()}
    return bind_state(state, config)


def bind_state(state: dict[str, Tensor], config: ModelConfig) -> TextWeights:
    """Bind tensors by the names that they have in the text part of a transformers model."""
    return bind_text(
        lambda name: _tensor(state, name, config), config, recipe_for(config, "groupwise-int")
    )


def _tensor(state: dict[str, Tensor], name: str, config: ModelConfig) -> Tensor:
    direct = {
        "text/token_embedding": "embed_tokens.weight",
        "text/final_norm": "norm.weight",
        "text/output_head": "lm_head.weight",
    }
    if name in direct:
        return state[direct[name]]
    _, _, layer, rest = name.split("/", 3)

    def get(key: str) -> Tensor:
        return state[f"layers.{layer}.{key}"]

    return _LAYER_RULES[rest](get, config)


Getter = Callable[[str], Tensor]


def _query_gate(get: Getter, config: ModelConfig) -> tuple[Tensor, Tensor]:
    sizes = config.text.attention
    heads = get("self_attn.q_proj.weight").view(sizes.query_heads, 2 * sizes.head_dim, -1)
    query, gate = heads.split(sizes.head_dim, dim=1)
    return query.flatten(0, 1), gate.flatten(0, 1)


def _attention_parts(get: Getter, config: ModelConfig) -> dict[str, Tensor]:
    query, gate = _query_gate(get, config)
    key, value = get("self_attn.k_proj.weight"), get("self_attn.v_proj.weight")
    return {"query": query, "key": key, "gate": gate, "value": value}


def _attention(*parts: str) -> Callable[[Getter, ModelConfig], Tensor]:
    return lambda get, config: torch.cat([_attention_parts(get, config)[p] for p in parts])


def _gdn_parts(get: Getter, config: ModelConfig) -> dict[str, Tensor]:
    sizes = config.text.gdn
    widths = (sizes.key_width, sizes.key_width, sizes.value_width)
    query, key, value = get("linear_attn.in_proj_qkv.weight").split(widths)
    z = get("linear_attn.in_proj_z.weight")
    a, b = get("linear_attn.in_proj_a.weight"), get("linear_attn.in_proj_b.weight")
    return {"query": query, "key": key, "value": value, "z": z, "a": a, "b": b}


def _gdn(*parts: str) -> Callable[[Getter, ModelConfig], Tensor]:
    return lambda get, config: torch.cat([_gdn_parts(get, config)[p] for p in parts])


def _plain(key: str) -> Callable[[Getter, ModelConfig], Tensor]:
    return lambda get, config: get(key)


def _stack(*keys: str) -> Callable[[Getter, ModelConfig], Tensor]:
    return lambda get, config: torch.cat([get(key) for key in keys])


_LAYER_RULES: dict[str, Callable[[Getter, ModelConfig], Tensor]] = {
    "input_norm": _plain("input_layernorm.weight"),
    "post_attention_norm": _plain("post_attention_layernorm.weight"),
    "attention/query_key": _attention("query", "key"),
    "attention/gate_value": _attention("gate", "value"),
    "attention/query_key_gate_value": _attention("query", "key", "gate", "value"),
    "attention/query_norm": _plain("self_attn.q_norm.weight"),
    "attention/key_norm": _plain("self_attn.k_norm.weight"),
    "attention/output": _plain("self_attn.o_proj.weight"),
    "gdn/a_projection": _gdn("a"),
    "gdn/b_projection": _gdn("b"),
    "gdn/a_b_projection": _gdn("a", "b"),
    "gdn/query_key": _gdn("query", "key"),
    "gdn/value_z": _gdn("value", "z"),
    "gdn/query_key_value_z": _gdn("query", "key", "value", "z"),
    "gdn/a_log": _plain("linear_attn.A_log"),
    "gdn/dt_bias": _plain("linear_attn.dt_bias"),
    "gdn/convolution": lambda get, _: get("linear_attn.conv1d.weight")[:, 0].t().contiguous(),
    "gdn/norm": _plain("linear_attn.norm.weight"),
    "gdn/output": _plain("linear_attn.out_proj.weight"),
    "mlp/gate_up": _stack("mlp.gate_proj.weight", "mlp.up_proj.weight"),
    "mlp/down": _plain("mlp.down_proj.weight"),
    "moe/router_shared_gate": _stack("mlp.gate.weight", "mlp.shared_expert_gate.weight"),
    "moe/routed_gate_up": lambda get, _: get("mlp.experts.gate_up_proj").flatten(0, 1),
    "moe/routed_down": lambda get, _: get("mlp.experts.down_proj").flatten(0, 1),
    "moe/shared_gate_up": _stack(
        "mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight"
    ),
    "moe/shared_down": _plain("mlp.shared_expert.down_proj.weight"),
}
