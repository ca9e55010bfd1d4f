"""Mutated headers and directories are refused, or read as a directory that holds together."""

import time
from collections import Counter

import artifact_mutations
import pytest
import torch

from ninfer.artifact import Identity, open_artifact, write_artifact
from ninfer.artifact.directory import check_geometry, encode_directory, parse_directory
from ninfer.errors import ArtifactError, PayloadError
from ninfer.formats import quantise

COUNT = 1_000
SOAK_COUNT = 10_000
# Far above what a refusal takes; a mutant that makes the parser hang is above it.
SECONDS_EACH = 2.0


def original(path) -> bytes:
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
    write_artifact(path, Identity("tiny", "int"), objects)
    return path.read_bytes()


def read_every_object(artifact) -> None:
    """What a legal directory promises holds: objects lie apart, inside the file, at their size."""
    directory = artifact.directory
    check_geometry(directory.entries, artifact.file_size - artifact.payload_offset)
    assert parse_directory(encode_directory(directory)) == directory
    assert len(set(artifact.names)) == len(artifact.names)
    for entry in directory.entries:
        if hasattr(entry, "shape"):
            try:
                assert tuple(artifact.tensor(entry.name).shape) == entry.shape
            except PayloadError as error:
                assert entry.format == "NVFP4" and "divisor" in str(error)
        else:
            assert len(artifact.resource(entry.name)) == entry.bytes


def try_mutants(tmp_path, count: int, seed: int) -> Counter:
    path = tmp_path / "a.ninfer"
    data = original(path)
    with open_artifact(path) as artifact:
        before = artifact.directory
    outcomes: Counter = Counter()
    for label, mutant in artifact_mutations.mutations(data, count, seed):
        path.write_bytes(mutant)
        start = time.perf_counter()
        try:
            with open_artifact(path) as artifact:
                read_every_object(artifact)
                outcome = "same" if artifact.directory == before else "other"
        except ArtifactError as error:
            assert "\n" not in str(error), label
            outcome = "refused"
        assert time.perf_counter() - start < SECONDS_EACH, label
        if label.endswith("blanks"):
            assert outcome == "same", label
        outcomes[outcome] += 1
    return outcomes


def test_mutants(tmp_path):
    outcomes = try_mutants(tmp_path, COUNT, seed=0)
    assert outcomes.total() == COUNT
    assert outcomes["refused"] > COUNT // 2
    assert outcomes["same"] >= COUNT // 8
    # Names, identities and equal-sized shapes that changed: the inventory must refuse these.
    assert 0 < outcomes["other"] < COUNT // 5


@pytest.mark.soak
def test_many_mutants(tmp_path, record_property):
    record_property("count", SOAK_COUNT)
    record_property("unit", "mutations")
    outcomes = try_mutants(tmp_path, SOAK_COUNT, seed=1)
    assert outcomes.total() == SOAK_COUNT
    assert outcomes["refused"] > SOAK_COUNT // 2


def test_mutants_are_the_same_for_a_seed(tmp_path):
    data = original(tmp_path / "a.ninfer")
    first = list(artifact_mutations.mutations(data, 40, seed=5))
    assert first == list(artifact_mutations.mutations(data, 40, seed=5))
    assert first != list(artifact_mutations.mutations(data, 40, seed=6))
