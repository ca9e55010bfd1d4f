"""Mutated headers and directories of a whole model: refused, or the same directory."""

import time
from collections import Counter
from pathlib import Path

import artifact_mutations
import framing_files
import pytest

from ninfer.artifact import Artifact, open_artifact
from ninfer.engine.contents import read_contents
from ninfer.engine.loader import read_config
from ninfer.errors import ArtifactError, ConfigError

COUNT = 1_000
SOAK_COUNT = 10_000
# Far above what a refusal takes.
SECONDS_EACH = 20.0


def content(artifact: Artifact) -> tuple[object, object]:
    """What a directory says; the order of objects says nothing."""
    return artifact.identity, {entry.name: entry for entry in artifact.directory.entries}


def outcomes(source: Path, folder: Path, count: int, seed: int) -> Counter[str]:
    path = folder / "mutant.ninfer"
    with open_artifact(source) as artifact:
        before = content(artifact)
    seen: Counter[str] = Counter()
    for label, mutant in artifact_mutations.mutations(source.read_bytes(), count, seed):
        path.write_bytes(mutant)
        try:
            with open_artifact(path) as artifact:
                read_config(artifact)
                assert content(artifact) == before, label
                seen["same"] += 1
        except (ArtifactError, ConfigError) as error:
            assert "\n" not in str(error), label
            seen["refused"] += 1
    return seen


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_mutants_are_refused_or_say_the_same(
    micro_artifacts: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    seen = outcomes(micro_artifacts[kind], tmp_path, COUNT // 2, seed=len(kind))
    assert seen.total() == COUNT // 2
    assert seen["refused"] > COUNT // 3 and seen["same"] >= COUNT // 16


V3_COUNT = 500
V3_SOAK_COUNT = 5_000


def v3_outcomes(source: Path, folder: Path, count: int, seed: int) -> Counter[str]:
    """v3 has open members and no checksum: what is read may differ, but it must fit itself."""
    path = folder / "mutant.ninfer"
    framing_files.write_v3(source, folder / "whole.ninfer")
    seen: Counter[str] = Counter()
    data = (folder / "whole.ninfer").read_bytes()
    for label, mutant in artifact_mutations.mutations(data, count, seed):
        path.write_bytes(mutant)
        start = time.process_time()
        try:
            with open_artifact(path) as artifact:
                contents = read_contents(artifact)
                for name, pieces in contents.table.items():
                    assert all(piece.object in artifact.names for piece in pieces), (label, name)
                seen["read"] += 1
        except (ArtifactError, ConfigError) as error:
            assert "\n" not in str(error), label
            seen["refused"] += 1
        assert time.process_time() - start < SECONDS_EACH, label
    return seen


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_v3_mutants_are_refused_or_read(
    micro_artifacts: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    seen = v3_outcomes(micro_artifacts[kind], tmp_path, V3_COUNT // 2, seed=len(kind))
    assert seen.total() == V3_COUNT // 2
    assert seen["refused"] > V3_COUNT // 5 and seen["read"] >= V3_COUNT // 16


@pytest.mark.soak
def test_many_v3_mutants_are_refused_or_read(
    micro_artifacts: dict[str, Path], tmp_path: Path, record_property: object
) -> None:
    record_property("count", V3_SOAK_COUNT)
    record_property("unit", "mutations of a whole v3 model")
    seen = v3_outcomes(micro_artifacts["moe"], tmp_path, V3_SOAK_COUNT, seed=3)
    assert seen.total() == V3_SOAK_COUNT


@pytest.mark.soak
def test_many_mutants_are_refused_or_say_the_same(
    micro_artifacts: dict[str, Path], tmp_path: Path, record_property: object
) -> None:
    record_property("count", SOAK_COUNT)
    record_property("unit", "mutations of a whole model")
    seen = outcomes(micro_artifacts["dense"], tmp_path, SOAK_COUNT, seed=2)
    assert seen.total() == SOAK_COUNT
