"""Mutated headers and directories are refused, or read as a directory that holds together."""

import time
from collections import Counter

import artifact_mutations
import pytest
import torch

from ninfer.artifact import (
    Component,
    Identity,
    ModelMap,
    Part,
    Proposal,
    Use,
    open_artifact,
    write_artifact,
)
from ninfer.artifact.directory import check_geometry, encode_directory, parse_directory
from ninfer.artifact.directory_v3 import encode_directory_v3, parse_directory_v3
from ninfer.errors import ArtifactError, PayloadError
from ninfer.formats import quantise

# By framing: what `make test` and what `make soak` tries.
COUNT = {2: 1_000, 3: 500}
SOAK_COUNT = {2: 10_000, 3: 5_000}
# Far above what a refusal takes; a mutant that makes the parser hang is above it.
SECONDS_EACH = 20.0


def original(path, framing: int = 2) -> bytes:
    formats = ["Q4G64_F16S", "Q5G64_F16S", "Q6G64_F16S", "W8G32_F16S", "NVFP4",
               "FP8_E4M3FN_ROW_BF16S"]  # fmt: skip
    objects = [
        ("frontend/tokenizer.json", b"{}"),
        ("text/norm", torch.ones(64)),
        ("text/ids", torch.zeros(3, 2, dtype=torch.int32)),
        ("text/scale", torch.tensor(1.0)),
        *[(f"text/{name}", quantise(torch.randn(128, 64), name)) for name in formats],
        ("frontend/template", b"hello"),
    ]
    owner = Identity("tiny", "int") if framing == 2 else model_map(formats)
    write_artifact(path, owner, objects)
    return path.read_bytes()


def model_map(formats: list[str]) -> ModelMap:
    """Bindings of every form, a use with its divisor, open members."""
    bindings = {f"text/{name}": (Part(f"text/{name}"),) for name in formats}
    halves = (Part("text/norm", (32, 64)), Part("text/norm", (0, 32)))
    divisor = {"activation_input_divisor": (Part("text/scale"),)}
    return ModelMap(
        {
            "text": Component(
                {"hidden_size": 64, "rope": {"theta": 1e7}},
                None,
                {"tokenizer": "frontend/tokenizer.json"},
                Proposal(7),
            ),
            "mtp": Component({}, "text"),
        },
        {**bindings, "text/halves": halves},
        (
            Use("text/NVFP4", "input", "AllowA4", divisor),
            Use("text/NVFP4", "other", "A16Only", {}),
        ),
        metadata={"name": "tiny", "weights_id": "int"},
        provenance={"made": ["by", "a", {"test": None}]},
    )


def read_every_object(artifact) -> None:
    """What a legal directory promises holds: objects lie apart, inside the file, at their size."""
    directory = artifact.directory
    check_geometry(directory.entries, artifact.file_size - artifact.payload_offset)
    if directory.model_map is None:
        assert parse_directory(encode_directory(directory)) == directory
    else:
        assert parse_directory_v3(encode_directory_v3(directory)) == directory
    assert len(set(artifact.names)) == len(artifact.names)
    for entry in directory.entries:
        if hasattr(entry, "shape"):
            try:
                assert tuple(artifact.tensor(entry.name).shape) == entry.shape
            except PayloadError as error:
                assert entry.format == "NVFP4" and "divisor" in str(error)
        else:
            assert len(artifact.resource(entry.name)) == entry.bytes


def try_mutants(tmp_path, framing: int, count: int, seed: int) -> Counter:
    path = tmp_path / "a.ninfer"
    data = original(path, framing)
    with open_artifact(path) as artifact:
        before = artifact.directory
    outcomes: Counter = Counter()
    for label, mutant in artifact_mutations.mutations(data, count, seed):
        path.write_bytes(mutant)
        start = time.process_time()
        try:
            with open_artifact(path) as artifact:
                read_every_object(artifact)
                outcome = "same" if artifact.directory == before else "other"
        except ArtifactError as error:
            assert "\n" not in str(error), label
            outcome = "refused"
        assert time.process_time() - start < SECONDS_EACH, label
        if label.endswith("blanks"):
            assert outcome == "same", label
        outcomes[outcome] += 1
    return outcomes


@pytest.mark.parametrize("framing", COUNT)
def test_mutants(tmp_path, framing):
    count = COUNT[framing]
    outcomes = try_mutants(tmp_path, framing, count, seed=0)
    assert outcomes.total() == count
    assert outcomes["refused"] > count // 2
    assert outcomes["same"] >= count // 8
    # Names, identities and equal-sized shapes that changed: the inventory must refuse these.
    assert 0 < outcomes["other"] < count // 5


@pytest.mark.soak
@pytest.mark.parametrize("framing", SOAK_COUNT)
def test_many_mutants(tmp_path, record_property, framing):
    count = SOAK_COUNT[framing]
    record_property("count", count)
    record_property("unit", f"mutations of v{framing} files")
    outcomes = try_mutants(tmp_path, framing, count, seed=1)
    assert outcomes.total() == count
    assert outcomes["refused"] > count // 2


def test_mutants_are_the_same_for_a_seed(tmp_path):
    data = original(tmp_path / "a.ninfer")
    first = list(artifact_mutations.mutations(data, 40, seed=5))
    assert first == list(artifact_mutations.mutations(data, 40, seed=5))
    assert first != list(artifact_mutations.mutations(data, 40, seed=6))
