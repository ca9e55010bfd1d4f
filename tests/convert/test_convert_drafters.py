"""DFlash and DFlash2 drafters, which are checkpoints of their own."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from checkpoints import Made, random_tensors
from safetensors.torch import save_file

from ninfer.artifact import open_artifact
from ninfer.artifact.directory import Identity
from ninfer.convert import convert
from ninfer.convert.checkpoint import Checkpoint
from ninfer.convert.source_config import registered_config, source_fields
from ninfer.errors import CheckpointError, ConfigError
from ninfer.formats import quantise
from ninfer.models import REGISTERED


def drafter_shapes() -> dict[str, tuple[int, ...]]:
    """A DFlash drafter of two layers for a model of width 128."""
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (128, 256),
        "hidden_norm.weight": (128,),
        "norm.weight": (128,),
    }
    for layer in range(2):
        prefix = f"layers.{layer}"
        shapes |= {
            f"{prefix}.input_layernorm.weight": (128,),
            f"{prefix}.post_attention_layernorm.weight": (128,),
            f"{prefix}.self_attn.q_proj.weight": (128, 128),
            f"{prefix}.self_attn.k_proj.weight": (64, 128),
            f"{prefix}.self_attn.v_proj.weight": (64, 128),
            f"{prefix}.self_attn.o_proj.weight": (128, 128),
            f"{prefix}.self_attn.q_norm.weight": (32,),
            f"{prefix}.self_attn.k_norm.weight": (32,),
            f"{prefix}.mlp.gate_proj.weight": (192, 128),
            f"{prefix}.mlp.up_proj.weight": (192, 128),
            f"{prefix}.mlp.down_proj.weight": (128, 192),
        }
    return shapes


DRAFTER_CONFIG = """{"num_hidden_layers": 2, "intermediate_size": 192, "num_attention_heads": 4,
 "num_key_value_heads": 2, "head_dim": 32, "sliding_window": 64, "block_size": 4,
 "conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 64, "selector_top_k": 4,
 "dflash_config": {"target_layer_ids": [0, 2], "mask_token_id": 504}}"""


@pytest.mark.parametrize("second", [False, True], ids=["dflash", "dflash2"])
def test_drafters_come_from_their_own_checkpoint(
    sparse: Made, dense: Made, tmp_path: Path, second: bool
) -> None:
    made, shapes = (dense if second else sparse), drafter_shapes()
    if second:
        for layer in range(2):
            for conv in ("attention_conv", "mlp_conv"):
                shapes[f"layers.{layer}.{conv}.base_kernel"] = (2, 2, 128)
                shapes[f"layers.{layer}.{conv}.kernel_projection.weight"] = (32, 128)
        shapes["candidate_selector.hidden_projection.weight"] = (64, 128)
        shapes["candidate_selector.predecessor_codebook.weight"] = (512, 64)
        shapes["candidate_selector.successor_codebook.weight"] = (512, 64)
    folder = tmp_path / "drafter"
    folder.mkdir()
    tensors = random_tensors(shapes, seed=21)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(DRAFTER_CONFIG)
    output = tmp_path / "out.ninfer"
    done = convert(replace(made.options, drafter_source=folder, output=output))
    assert done.unused == ()
    name = "dflash2" if second else "dflash"
    parts = [tensors[f"layers.1.self_attn.{part}_proj.weight"] for part in "qkv"]
    with open_artifact(output) as artifact:
        stored = artifact.tensor(f"{name}/layers/1/attention/query_key_value")
        assert torch.equal(stored.base, quantise(torch.cat(parts), "W8G32_F16S").base)
        assert torch.equal(artifact.tensor(f"{name}/context_norm"), tensors["hidden_norm.weight"])
        if second:
            kernel = artifact.tensor("dflash2/layers/0/mlp_conv/base_kernel")
            assert torch.equal(kernel, tensors["layers.0.mlp_conv.base_kernel"])
            codebook = artifact.tensor("dflash2/candidate_selector/successor_codebook")
            source = tensors["candidate_selector.successor_codebook.weight"]
            assert torch.equal(codebook, source)


def test_a_drafter_for_a_model_without_one_is_refused(dense: Made, tmp_path: Path) -> None:
    folder = tmp_path / "drafter"
    folder.mkdir()
    save_file(random_tensors({"fc.weight": (2, 2)}, seed=1), folder / "model.safetensors")
    (folder / "config.json").write_text(DRAFTER_CONFIG)
    fields = source_fields(dense.folder, Checkpoint(folder))
    with pytest.raises(ConfigError, match="has no drafter; leave out --drafter-source"):
        registered_config(Identity("qwen3.6-27b", "groupwise-int"), fields)


def test_a_missing_drafter_is_asked_for(sparse: Made, tmp_path: Path) -> None:
    """As for the registered mixture of experts, whose artifact has a drafter in any case."""
    from ninfer.convert import plan

    def with_drafter(*arguments: object) -> object:
        config, document = honest(*arguments)
        drafter = REGISTERED["qwen3.6-35b-a3b", "groupwise-int"].dflash
        return replace(config, dflash=drafter), document

    honest = plan._sizes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "_sizes", with_drafter)
        with pytest.raises(CheckpointError, match="drafter checkpoint; give --drafter-source DIR"):
            convert(replace(sparse.options, output=tmp_path / "out.ninfer"))


def test_a_registered_target_takes_the_drafter_that_it_was_published_with(dense: Made) -> None:
    identity = Identity("qwen3.8-27b", "groupwise-int")
    fields = source_fields(dense.folder, None)
    text = {
        **{name: v for name, v in fields["text_config"].items() if name != "layer_types"},
        "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25},
        "hidden_size": 5120,
        "num_hidden_layers": 64,
        "intermediate_size": 17_408,
        "vocab_size": 248_320,
        "addressable_vocab_size": 248_077,
        "max_position_embeddings": 262_144,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
    }
    plain = registered_config(identity, {"text_config": text, "mtp": True})
    assert plain.dflash2 is None
    # The drafter's own file may spell its sizes in any way.
    drafted = {"text_config": text, "mtp": True, "dflash2_config": {"layers": "five"}}
    assert registered_config(identity, drafted).dflash2 is not None
    with pytest.raises(ConfigError, match=r"text\.attention\.rope_theta is 1000"):
        rope = {"rope_theta": 1000.0, "partial_rotary_factor": 0.25}
        registered_config(identity, {"text_config": {**text, "rope_parameters": rope}})
