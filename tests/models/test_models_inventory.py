"""Inventories against the published artifacts, and what is refused or skipped when one differs."""

from collections import Counter
from dataclasses import dataclass, replace

import pytest

from ninfer.artifact.directory import Directory, Identity, TensorEntry, encode_directory
from ninfer.artifact.layouts import align_up, encoded_bytes, layout_of
from ninfer.artifact.writer import ResourceSpec as PlannedResource
from ninfer.artifact.writer import TensorSpec as PlannedTensor
from ninfer.artifact.writer import plan_directory
from ninfer.errors import ConfigError, InventoryError
from ninfer.models import (
    REGISTERED,
    ResourceSpec,
    TensorSpec,
    check_inventory,
    object_specs,
    resolve_config,
)
from ninfer.models.qwen3_6 import sampling_preset
from ninfer.models.qwen3_6.sizes import DFLASH2_27B

DENSE = Identity("qwen3.6-27b", "groupwise-int")
NVFP4 = Identity("qwen3.6-27b", "nvfp4")
MOE = Identity("qwen3.6-35b-a3b", "groupwise-int")
DENSE_38 = Identity("qwen3.8-27b", "groupwise-int")
NVFP4_38 = Identity("qwen3.8-27b", "nvfp4")
# The six text resources of a release, up to the 256-byte border of the first tensor.
RESOURCES_36 = 12_833_536
RESOURCES_38 = 12_837_376


@dataclass(frozen=True)
class Published:
    """What is known of a published container v2 file."""

    identity: Identity
    objects: int
    formats: dict[str, int]
    tensor_bytes: int
    resource_bytes: int
    file_bytes: int


FILES = (
    Published(
        DENSE,
        1124,
        {"BF16": 582, "FP32": 96, "I32": 1, "Q4": 183, "Q5": 246, "Q6": 3, "W8": 7},
        17_482_342_304,
        RESOURCES_36,
        17_495_365_888,
    ),
    Published(
        NVFP4,
        1307,
        {"BF16": 591, "FP32": 343, "I32": 1, "Q4": 55, "Q5": 54, "Q6": 1, "W8": 9, "NVFP4": 247},
        18_310_883_160,
        RESOURCES_36,
        18_324_064_000,
    ),
    Published(
        MOE,
        940,
        {"BF16": 487, "FP32": 60, "I32": 1, "Q4": 95, "Q5": 91, "Q6": 5, "W8": 195},
        22_770_245_536,
        RESOURCES_36,
        22_783_246_080,
    ),
    Published(
        DENSE_38,
        1124,
        {"BF16": 582, "FP32": 96, "I32": 1, "Q4": 183, "Q5": 246, "Q6": 1, "W8": 9},
        18_197_503_904,
        RESOURCES_38,
        18_210_531_328,
    ),
    Published(
        NVFP4_38,
        1124,
        {"BF16": 534, "FP32": 208, "I32": 1, "Q4": 55, "Q5": 54, "Q6": 1, "W8": 7}
        | {"NVFP4": 112, "FP8": 146},
        21_479_607_072,
        RESOURCES_38,
        21_492_695_040,
    ),
)
every_file = pytest.mark.parametrize("file", FILES, ids=[str(file.identity) for file in FILES])


def specs_of(identity: Identity) -> list[TensorSpec | ResourceSpec]:
    return object_specs(identity, resolve_config(identity, None))


def planned(identity: Identity, resource_bytes: int = 6) -> Directory:
    """The directory a writer would make, with all resource bytes in the first resource."""
    first = resource_bytes - 5
    objects = []
    for spec in specs_of(identity):
        if isinstance(spec, TensorSpec):
            objects.append(PlannedTensor(spec.name, spec.shape, spec.format))
        else:
            objects.append(PlannedResource(spec.name, first))
            first = 1
    return plan_directory(identity, objects)


def short(format: str) -> str:
    return format if format == "NVFP4" else format.split("G")[0].split("_")[0]


def tensor_entries(directory: Directory) -> list[TensorEntry]:
    return [entry for entry in directory.entries if isinstance(entry, TensorEntry)]


@every_file
def test_published_counts_and_bytes(file: Published) -> None:
    directory = planned(file.identity)
    tensors = tensor_entries(directory)
    assert len(directory.entries) == file.objects
    assert Counter(short(entry.format) for entry in tensors) == file.formats
    assert sum(entry.bytes for entry in tensors) == file.tensor_bytes


@every_file
def test_published_file_size(file: Published) -> None:
    directory = planned(file.identity, file.resource_bytes)
    last = directory.entries[-1]
    payload_offset = align_up(16 + len(encode_directory(directory)), 4096)
    assert payload_offset + last.offset + last.bytes == file.file_bytes


def test_every_registered_identity_has_a_published_file() -> None:
    assert {tuple(str(file.identity).rsplit("/", 1)) for file in FILES} == set(REGISTERED)


@pytest.mark.parametrize(
    ("identity", "formats"),
    [
        (DENSE_38, {"BF16": 627, "FP32": 96, "I32": 1, "Q4": 183, "Q5": 246, "Q6": 1, "W8": 30}),
        (
            NVFP4_38,
            {"BF16": 579, "FP32": 208, "I32": 1, "Q4": 55, "Q5": 54, "Q6": 1, "W8": 28}
            | {"NVFP4": 112, "FP8": 146},
        ),
    ],
    ids=["groupwise-int", "nvfp4"],
)
def test_the_dflash2_drafter_comes_last(identity: Identity, formats: dict[str, int]) -> None:
    plain = specs_of(identity)
    config = replace(resolve_config(identity, None), dflash2=DFLASH2_27B)
    specs = object_specs(identity, config)
    assert len(specs) == len(plain) + 66 == 1190
    assert specs[: len(plain)] == plain
    tensors = [spec for spec in specs if isinstance(spec, TensorSpec)]
    assert Counter(short(spec.format) for spec in tensors) == formats
    added = tensors[len(plain) - 6 :]
    sizes = [encoded_bytes(s.format, layout_of(s.format), s.shape) for s in added]
    assert sum(sizes) == 2_226_792_960
    shapes = {spec.name: spec.shape for spec in added}
    assert shapes["dflash2/feature_projection"] == (5120, 25_600)
    assert shapes["dflash2/layers/4/attention_conv/base_kernel"] == (2, 2, 5120)
    assert shapes["dflash2/layers/0/mlp_conv/kernel_projection"] == (1280, 5120)
    assert shapes["dflash2/candidate_selector/successor_codebook"] == (248_320, 256)


def layer_names(identity: Identity, layer: int) -> list[str]:
    prefix = f"text/layers/{layer}/"
    names = (spec.name for spec in specs_of(identity))
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]


def test_names_of_one_layer_of_each_kind() -> None:
    assert layer_names(DENSE, 3) == [
        "input_norm",
        "attention/query_key",
        "attention/gate_value",
        "attention/query_norm",
        "attention/key_norm",
        "attention/output",
        "post_attention_norm",
        "mlp/gate_up",
        "mlp/down",
    ]
    assert layer_names(MOE, 0) == [
        "input_norm",
        "gdn/a_log",
        "gdn/dt_bias",
        "gdn/convolution",
        "gdn/a_b_projection",
        "gdn/query_key_value_z",
        "gdn/norm",
        "gdn/output",
        "post_attention_norm",
        "moe/router_shared_gate",
        "moe/routed_gate_up",
        "moe/routed_down",
        "moe/shared_gate_up",
        "moe/shared_down",
    ]


def test_divisors_follow_nvfp4_matrices_only() -> None:
    divisor = "input_scale_divisor"
    assert layer_names(NVFP4, 27) == [
        "input_norm",
        "attention/query_key_gate_value",
        f"attention/input_projection/{divisor}",
        "attention/query_norm",
        "attention/key_norm",
        "attention/output",
        f"attention/output_projection/{divisor}",
        "post_attention_norm",
        "mlp/gate_up",
        f"mlp/gate_up_projection/{divisor}",
        "mlp/down",
        f"mlp/down_projection/{divisor}",
    ]
    for layer, matrix in ((23, "query_key_gate_value"), (7, "output")):
        assert f"attention/{matrix}" in layer_names(NVFP4, layer)
    assert f"attention/input_projection/{divisor}" not in layer_names(NVFP4, 23)
    assert f"attention/output_projection/{divisor}" in layer_names(NVFP4, 11)
    assert f"attention/output_projection/{divisor}" not in layer_names(NVFP4, 7)
    assert layer_names(NVFP4, 4)[6:10] == [
        "gdn/query_key_value_z",
        f"gdn/input_projection/{divisor}",
        "gdn/norm",
        "gdn/output",
    ]
    assert f"gdn/output_projection/{divisor}" not in layer_names(NVFP4, 4)
    assert f"gdn/output_projection/{divisor}" in layer_names(NVFP4, 5)
    assert [n for n in layer_names(NVFP4_38, 55) if divisor in n] == [
        f"mlp/gate_up_projection/{divisor}",
        f"mlp/down_projection/{divisor}",
    ]
    assert not [n for n in layer_names(NVFP4_38, 56) if divisor in n]


def changed(directory: Directory, target: str, members: dict[str, object]) -> Directory:
    entries = tuple(
        replace(entry, **members) if entry.name == target else entry for entry in directory.entries
    )
    return Directory(directory.identity, entries)


def test_the_exact_inventory_passes() -> None:
    assert check_inventory(planned(DENSE), specs_of(DENSE)) == []


@pytest.mark.parametrize(
    ("name", "members", "message"),
    [
        (
            "text/layers/5/mlp/down",
            {"name": "text/layers/5/mlp/dowm"},
            "mlp/down' is missing",
        ),
        ("text/final_norm", {"shape": (5119,)}, r"shape \[5119\]; expected \[5120\]"),
        ("text/output_head", {"format": "W8G32_F16S"}, "W8G32_F16S; expected Q6G64_F16S"),
        ("vision/merger/fc1", {"name": "vision/merger/fc3"}, "'vision/merger/fc1' is missing"),
    ],
)
def test_a_differing_object_is_refused_by_name(
    name: str, members: dict[str, object], message: str
) -> None:
    with pytest.raises(InventoryError, match=message):
        check_inventory(changed(planned(DENSE), name, members), specs_of(DENSE))


def with_extra(name: str) -> Directory:
    directory = planned(DENSE)
    extra = TensorEntry(name, (1,), "FP32", "contiguous-le-v1", 0, 4)
    return Directory(directory.identity, (*directory.entries, extra))


@pytest.mark.parametrize("name", ["text/extra", "text/layers/64/input_norm", "frontend/more.json"])
def test_an_extra_object_of_the_text_model_is_refused(name: str) -> None:
    with pytest.raises(InventoryError, match=name):
        check_inventory(with_extra(name), specs_of(DENSE))


@pytest.mark.parametrize(
    "name", ["mtp/extra", "dflash/fc", "dflash2/fc", "vision/extra", "audio/encoder", "proposal"]
)
def test_an_extra_object_elsewhere_is_reported(name: str) -> None:
    """K2: an optional object that this version does not know must not make the file unusable."""
    assert check_inventory(with_extra(name), specs_of(DENSE)) == [name]


def test_kinds_must_agree() -> None:
    specs = [ResourceSpec("text/final_norm"), *specs_of(DENSE)]
    with pytest.raises(InventoryError, match="is a tensor; a resource is expected"):
        check_inventory(planned(DENSE), specs)


def test_an_unknown_identity_needs_a_configuration() -> None:
    with pytest.raises(InventoryError, match="'qwen9-1b/groupwise-int' is not one this version"):
        resolve_config(Identity("qwen9-1b", "groupwise-int"), None)


def test_a_configuration_of_another_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="is for model 'b', the directory says 'a'"):
        resolve_config(Identity("a", "groupwise-int"), {"model_id": "b"})


@pytest.mark.parametrize(
    ("sizes_of", "weights_id", "message"),
    [
        (DENSE, "nvfp5", "'nvfp5' is not supported for dense qwen3.6 models; known: groupwise-int"),
        (MOE, "nvfp4", "'nvfp4' is not supported for mixture-of-experts qwen3.6 models; known: gr"),
    ],
    ids=["unknown", "unpublished"],
)
def test_a_weights_id_without_a_recipe_is_refused(
    sizes_of: Identity, weights_id: str, message: str
) -> None:
    config = resolve_config(sizes_of, None)
    with pytest.raises(ConfigError, match=message):
        object_specs(Identity(sizes_of.model_id, weights_id), config)


@every_file
@pytest.mark.parametrize("thinking", [True, False])
def test_sampling_presets(file: Published, thinking: bool) -> None:
    params = sampling_preset(resolve_config(file.identity, None), thinking=thinking)
    found = (params.temperature, params.top_p, params.top_k, params.presence_penalty)
    presence = 1.5 if file.identity is MOE else 0.0
    assert found == ((1.0, 0.95, 20, presence) if thinking else (0.7, 0.80, 20, 1.5))
    assert (params.min_p, params.frequency_penalty) == (0, 0)
