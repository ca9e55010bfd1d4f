"""Inventories against the published artifacts, and what is refused or skipped when one differs."""

from collections import Counter
from dataclasses import replace

import pytest

from ninfer.artifact.directory import Directory, Identity, TensorEntry
from ninfer.artifact.writer import ResourceSpec as PlannedResource
from ninfer.artifact.writer import TensorSpec as PlannedTensor
from ninfer.artifact.writer import plan_directory
from ninfer.errors import ConfigError, InventoryError
from ninfer.models import (
    ResourceSpec,
    TensorSpec,
    check_inventory,
    object_specs,
    resolve_config,
)

DENSE = Identity("qwen3.6-27b", "groupwise-int")
MOE = Identity("qwen3.6-35b-a3b", "groupwise-int")
# The six text resources of the Qwen3.6 files, up to the 256-byte border of the first tensor.
RESOURCE_BYTES = 12_833_536


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


@pytest.mark.parametrize(
    ("identity", "objects", "formats", "tensor_bytes"),
    [
        (
            DENSE,
            1124,
            {"BF16": 582, "FP32": 96, "I32": 1, "Q4": 183, "Q5": 246, "Q6": 3, "W8": 7},
            17_482_342_304,
        ),
        (
            MOE,
            940,
            {"BF16": 487, "FP32": 60, "I32": 1, "Q4": 95, "Q5": 91, "Q6": 5, "W8": 195},
            22_770_245_536,
        ),
    ],
    ids=["27b", "35b"],
)
def test_published_counts_and_bytes(
    identity: Identity, objects: int, formats: dict[str, int], tensor_bytes: int
) -> None:
    directory = planned(identity)
    tensors = [entry for entry in directory.entries if isinstance(entry, TensorEntry)]
    assert len(directory.entries) == objects
    assert Counter(entry.format.split("G")[0] for entry in tensors) == formats
    assert sum(entry.bytes for entry in tensors) == tensor_bytes


@pytest.mark.parametrize(
    ("identity", "file_bytes"),
    [(DENSE, 17_495_365_888), (MOE, 22_783_246_080)],
    ids=["27b", "35b"],
)
def test_published_file_size(identity: Identity, file_bytes: int) -> None:
    from ninfer.artifact.directory import encode_directory
    from ninfer.artifact.layouts import align_up

    directory = planned(identity, RESOURCE_BYTES)
    last = directory.entries[-1]
    payload_offset = align_up(16 + len(encode_directory(directory)), 4096)
    assert payload_offset + last.offset + last.bytes == file_bytes


def test_names_of_one_layer_of_each_kind() -> None:
    names = [spec.name for spec in specs_of(DENSE)]
    layer = [n.removeprefix("text/layers/3/") for n in names if n.startswith("text/layers/3/")]
    assert layer == [
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
    moe = [spec.name for spec in specs_of(MOE) if spec.name.startswith("text/layers/0/")]
    assert [n.removeprefix("text/layers/0/") for n in moe] == [
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


def test_an_unknown_weights_id_is_refused() -> None:
    with pytest.raises(ConfigError, match="'nvfp4' is not supported by this version"):
        object_specs(Identity("qwen3.6-27b", "nvfp4"), resolve_config(DENSE, None))
