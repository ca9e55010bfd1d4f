"""Mutated headers and directories of a whole model: refused, or the same directory."""

from collections import Counter
from pathlib import Path

import artifact_mutations
import pytest

from ninfer.artifact import Artifact, open_artifact
from ninfer.engine.loader import read_config
from ninfer.errors import ArtifactError, ConfigError

COUNT = 1_000
SOAK_COUNT = 10_000


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


@pytest.mark.soak
def test_many_mutants_are_refused_or_say_the_same(
    micro_artifacts: dict[str, Path], tmp_path: Path, record_property: object
) -> None:
    record_property("count", SOAK_COUNT)
    record_property("unit", "mutations of a whole model")
    seen = outcomes(micro_artifacts["dense"], tmp_path, SOAK_COUNT, seed=2)
    assert seen.total() == SOAK_COUNT
