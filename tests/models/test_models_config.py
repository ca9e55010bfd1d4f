"""Reading configurations: nothing has a default, and every bad field is named."""

from typing import Any

import pytest

from ninfer.errors import ConfigError
from ninfer.models.config import model_config_from_fields
from ninfer.models.qwen3_6.sizes import DENSE_27B, MOE_35B

TEXT = {
    "vocab_size": 248_320,
    "addressable_vocab_size": 248_077,
    "hidden_size": 2048,
    "num_hidden_layers": 40,
    "full_attention_interval": 4,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 262_144,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25},
}


def read(**changes: Any) -> Any:
    return model_config_from_fields({"text_config": {**TEXT, **changes}})


def test_hugging_face_fields_give_the_registered_sizes() -> None:
    assert read().text == MOE_35B.text


def test_layer_kinds_of_the_27b() -> None:
    text = DENSE_27B.text
    assert text.attention_layers == tuple(range(3, 64, 4))
    assert len(text.gdn_layers) == 48
    assert text.gdn.conv_channels == 10_240
    assert text.attention.scale == 1 / 16


@pytest.mark.parametrize("name", sorted(set(TEXT) - {"addressable_vocab_size", "num_experts"}))
def test_a_missing_field_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f"config.text_config.{name} is missing"):
        read(**{name: None})


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "8", [8], 10**10])
def test_a_field_of_another_kind_is_named_with_its_value(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"config\.text_config\.num_hidden_layers must be"):
        read(num_hidden_layers=value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_attention_heads": 15}, "num_attention_heads 15 does not fit num_key_value_heads 2"),
        ({"linear_num_value_heads": 24}, "linear_num_value_heads 24 does not fit"),
        ({"addressable_vocab_size": 248_321}, "addressable_vocab_size 248321 does not fit"),
        ({"num_experts_per_tok": 257}, "num_experts_per_tok 257 does not fit num_experts 256"),
        ({"full_attention_interval": 41}, "full_attention_interval 41 does not fit"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers 1000000000 does not fit"),
        ({"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim 1 does not fit"),
        ({"rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 2}}, "rotary"),
        ({"rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 1e-9}}, "rotary"),
        ({"head_dim": 2}, "rotary dimensions 0 does not fit"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read(**changes)


@pytest.mark.parametrize("value", [float("inf"), 10**400, float("nan"), 0.0, -1.0, "1e-6", True])
def test_a_number_must_be_positive_and_finite(value: Any) -> None:
    with pytest.raises(ConfigError, match="rms_norm_eps must be a positive number"):
        read(rms_norm_eps=value)


ROPE = {"rope_theta": 1e7, "partial_rotary_factor": 0.25}
YARN = {"rope_type": "yarn", "factor": 4.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tie_word_embeddings": True}, "tie_word_embeddings is True; only False"),
        ({"attn_output_gate": False}, "attn_output_gate is False; only True"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; only 'silu'"),
        ({"norm_topk_prob": False}, "norm_topk_prob is False"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"mlp_only_layers": [3]}, r"mlp_only_layers is \[3\]"),
        ({"layer_types": ["full_attention"] * 40}, r"layer_types\[0\] is 'full_attention'"),
        ({"layer_types": ["linear_attention"]}, "layer_types must name the kind of every layer"),
        ({"rope_parameters": {**ROPE, "rope_type": "yarn"}}, "rope_type is 'yarn'"),
        ({"rope_parameters": {**ROPE, "mrope_interleaved": False}}, "mrope_interleaved is False"),
        ({"rope_parameters": {**ROPE, "mrope_section": [16, 8, 8]}}, r"make it \[11, 11, 10\]"),
    ],
)
def test_a_member_that_would_change_the_answer_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read(**changes)


def test_harmless_members_pass_and_unknown_ones_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rope = {**ROPE, "rope_type": "default", "mrope_section": [11, 11, 10]}
    read(use_cache=True, initializer_range=0.02, rope_parameters=rope, hidden_act="silu")
    assert not caplog.records
    read(rope_scaling_of_the_future=2)
    assert "rope_scaling_of_the_future" in caplog.text


def test_a_drafter_must_fit_the_text_model() -> None:
    drafter = {
        "num_hidden_layers": 2,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 128,
        "target_layer_ids": [0, 40],
        "sliding_window": 64,
        "mask_token_id": 1,
        "block_size": 16,
    }
    with pytest.raises(ConfigError, match=r"target_layer_ids \[0, 40\] does not fit"):
        model_config_from_fields({"text_config": TEXT, "dflash_config": drafter})
    drafter |= {"target_layer_ids": [0], "mask_token_id": 10**9}
    with pytest.raises(ConfigError, match="mask_token_id 1000000000 does not fit vocab_size"):
        model_config_from_fields({"text_config": TEXT, "dflash_config": drafter})
    for targets in ([3, 1], [1, 1]):
        drafter |= {"target_layer_ids": targets, "mask_token_id": 1}
        with pytest.raises(ConfigError, match=r"target_layer_ids .* does not fit their order"):
            model_config_from_fields({"text_config": TEXT, "dflash_config": drafter})
    drafter |= {"target_layer_ids": [1, 3], "head_dim": 127}
    with pytest.raises(ConfigError, match="drafter head_dim 127 does not fit"):
        model_config_from_fields({"text_config": TEXT, "dflash_config": drafter})


def test_a_text_configuration_must_be_an_object() -> None:
    with pytest.raises(ConfigError, match=r"config\.text_config must be an object"):
        model_config_from_fields({"text_config": 3})


@pytest.mark.parametrize(
    "field",
    [
        {"rope_parameters": {**ROPE, "rope_type": "yarn"}},
        {"rope_scaling": YARN},
        {"rope_scaling": {"factor": 2.0}},
    ],
)
def test_e10_a_stretched_context_is_refused_by_name(field: dict[str, Any]) -> None:
    """The report: the factor reached the model, the drafter went on without it."""
    with pytest.raises(ConfigError, match=r"rope_(parameters|scaling)\.(rope_type|factor) is"):
        read(**field)
    assert read().text.context == TEXT["max_position_embeddings"]
