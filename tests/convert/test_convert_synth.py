"""Synthetic artifacts of every shape: whole, legal, and of the published sizes at full scale."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ninfer.artifact import open_artifact
from ninfer.artifact.directory import Identity
from ninfer.convert import full_size_weights, synthesise
from ninfer.convert.geometry import SHAPES
from ninfer.convert.synthetic_model import RandomWeights, synthetic_model
from ninfer.errors import ArtifactError, InventoryError, UsageError
from ninfer.models import TensorSpec, check_inventory, object_specs, resolve_config
from ninfer.models.qwen3_6 import bind_text, recipe_for
from ninfer.models.qwen3_6.sizes import DFLASH2_27B

every_shape = pytest.mark.parametrize("like", SHAPES)


@every_shape
def test_full_scale_has_the_sizes_and_objects_of_the_published_file(like: str) -> None:
    shape = SHAPES[like]
    published = Identity(shape.model_id, shape.weights_id)
    model = synthetic_model(like, "full")
    assert model.config == resolve_config(published, None)
    assert list(model.specs[1:]) == object_specs(published, model.config)
    assert model.specs[0].name == "model/config.json"
    assert model.identity.model_id == f"synthetic/{shape.model_id}-full"


def test_full_scale_with_dflash2() -> None:
    plain = synthetic_model("qwen3.8-27b/nvfp4", "full")
    model = synthetic_model("qwen3.8-27b/nvfp4", "full", drafter="dflash2")
    assert model.config == replace(plain.config, dflash2=DFLASH2_27B)
    assert len(model.specs) == len(plain.specs) + 66


@every_shape
@pytest.mark.parametrize("drafter", [None, "dflash2"])
def test_a_micro_artifact_is_whole_and_legal(
    like: str, drafter: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "a.ninfer"
    synthesise(path, like=like, scale="micro", drafter=drafter)
    model = synthetic_model(like, "micro", drafter=drafter)
    with open_artifact(path) as artifact:
        assert check_inventory(artifact.directory, model.specs) == []
        for name in artifact.names:
            artifact.verify_payload(name)
        for name in (n for n in artifact.names if n.endswith("input_scale_divisor")):
            divisor = artifact.tensor(name)
            assert isinstance(divisor, torch.Tensor)
            assert divisor.shape == () and 0 < divisor.item() < 1000
        assert any(name.startswith("dflash2/") for name in artifact.names) == bool(drafter)


def test_nvfp4_shapes_have_their_formats_by_layer(tmp_path: Path) -> None:
    """The BF16 exceptions are by layer index, at any depth."""
    formats = {
        spec.name: spec.format
        for spec in synthetic_model("qwen3.6-27b/nvfp4", "tiny").specs
        if isinstance(spec, TensorSpec)
    }
    assert formats["text/layers/0/gdn/query_key_value_z"] == "NVFP4"
    assert formats["text/layers/7/attention/output"] == "BF16"
    assert formats["text/layers/4/gdn/output"] == "BF16"
    assert formats["text/layers/5/gdn/output"] == "NVFP4"


@every_shape
def test_full_path_at_micro_size_gives_every_object_without_a_file(like: str) -> None:
    weights = full_size_weights(like, device="cpu", drafter="dflash2", scale="micro")
    for spec in weights.model.specs:
        if isinstance(spec, TensorSpec):
            value = weights(spec.name)
            assert tuple(value.shape) == spec.shape, spec.name
            if isinstance(value, torch.Tensor):
                assert value.dtype.itemsize * 8 == {"BF16": 16, "FP32": 32, "I32": 32}[spec.format]
            else:
                value.validate(spec.name)
    with pytest.raises(InventoryError, match="no tensor 'text/nothing'"):
        weights("text/nothing")


def test_full_path_does_not_depend_on_the_order_of_asking() -> None:
    model = synthetic_model("qwen3.6-27b", "micro")
    names = [spec.name for spec in model.specs if "mlp/down" in spec.name]
    first = RandomWeights(model, "cpu", 3)
    second = RandomWeights(model, "cpu", 3)
    forth = [first(name).dequantise() for name in names]
    back = [second(name).dequantise() for name in reversed(names)]
    assert all(torch.equal(a, b) for a, b in zip(forth, reversed(back), strict=True))
    assert not torch.equal(forth[0], forth[1])


@pytest.mark.parametrize("like", ["qwen3.6-27b/nvfp4", "qwen3.6-35b-a3b", "qwen3.8-27b/nvfp4"])
def test_weights_without_a_file_bind(like: str) -> None:
    weights = full_size_weights(like, device="cpu", scale="micro")
    config = weights.model.config
    text = bind_text(weights, config, recipe_for(config, weights.model.identity.weights_id))
    assert len(text.layers) == config.text.layers
    assert tuple(text.head.shape) == (config.text.vocab_rows, config.text.hidden)


def test_full_scale_file_path(tmp_path: Path) -> None:
    """What --scale full does, with every size shrunk so that it takes a second."""
    small = {
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "intermediate_size": 256,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 3,
    }
    path = tmp_path / "a.ninfer"
    calls: list[tuple[str, int, int]] = []
    synthesise(
        path,
        like="qwen3.6-27b",
        scale="full",
        overrides=small,
        progress=lambda *call: calls.append(call),
    )
    with open_artifact(path) as artifact:
        for name in artifact.names:
            if not name.startswith("mtp/"):
                artifact.verify_payload(name)
        assert artifact.identity.model_id == "synthetic/qwen3.6-27b-full"
    assert [done for _, done, _ in calls] == sorted({done for _, done, _ in calls})
    assert calls[-1][1] == calls[-1][2]


def test_a_full_disk_is_refused_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(free=100_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    path = tmp_path / "missing" / "a.ninfer"
    with pytest.raises(ArtifactError, match=r"bytes are needed.* has 100,000,000 free"):
        synthesise(tmp_path / "a.ninfer", like="qwen3.8-27b", scale="full")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ArtifactError, match="cannot be created"):
        synthesise(path, like="qwen3.8-27b", scale="micro")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"like": "qwen3.6-35b-a3b/nvfp4"}, "--like qwen3.6-35b-a3b/nvfp4: must be one of"),
        ({"like": "qwen3.6-27b", "scale": "huge"}, "--scale huge: must be one of micro, tiny"),
        ({"like": "qwen3.6-27b", "drafter": "eagle"}, "--drafter eagle: must be one of dflash2"),
        ({"like": "qwen3.6-27b", "overrides": {"x": 1}}, "--set x=1: unknown size; known: full_a"),
    ],
)
def test_what_is_unknown_is_refused(
    options: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        synthesise(tmp_path / "a.ninfer", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.gpu
def test_full_size_layers_on_a_card() -> None:
    weights = full_size_weights("qwen3.8-27b/nvfp4", device="cuda")
    for name in ("0/mlp/gate_up", "60/mlp/down", "3/attention/query_key_gate_value"):
        matrix = weights(f"text/layers/{name}")
        assert matrix.device.type == "cuda"
        matrix.validate(name)
