"""Rewrite an artifact in another framing; every payload byte stays where it is."""

import os
from pathlib import Path
from typing import Final

from ninfer.artifact.directory import Directory, Identity
from ninfer.artifact.file_plan import (
    FILE_LIMIT,
    FilePlan,
    payload_bytes_of,
    plan_v2,
    plan_v3,
)
from ninfer.artifact.file_set import FileSet
from ninfer.artifact.model_map import ModelMap
from ninfer.artifact.reader import Artifact
from ninfer.errors import UsageError

_WINDOW: Final = 64 << 20


def migrate_to_v2(
    source: Artifact, target: str | os.PathLike[str], identity: Identity | None = None
) -> None:
    """Write a v1, v2 or v3 artifact as v2; ids of v3 become names, components and uses are lost.

    `identity` replaces what the source says of itself. Raises UsageError when neither names the
    weights, ArtifactError when a file cannot be read or written.
    """
    owner = identity or source.identity
    if not owner.weights_id:
        raise UsageError(f"{source.path}: names no weights id; give the identity for v2")
    _copy(source, Path(target), plan_v2(Directory(owner, source.directory.entries)))


def migrate_to_v3(
    source: Artifact,
    target: str | os.PathLike[str],
    model_map: ModelMap,
    *,
    artifact_id: bytes | None = None,
    file_limit: int = FILE_LIMIT,
) -> None:
    """Write any artifact as v3 with this model map; names become ids.

    Parameters are as for ArtifactWriter. Raises DirectoryError for a map that does not fit the
    objects, ArtifactError when a file cannot be read or written.
    """
    path = Path(target)
    directory = Directory(source.identity, source.directory.entries, model_map)
    plan = plan_v3(directory, path.name, artifact_id=artifact_id, file_limit=file_limit)
    _copy(source, path, plan)


def _copy(source: Artifact, target: Path, plan: FilePlan) -> None:
    total = payload_bytes_of(plan.directory)
    files = FileSet(target, plan.files)
    try:
        files.open()
        for start in range(0, total, _WINDOW):
            files.write(source.payload(start, min(_WINDOW, total - start)))
        files.commit()
    finally:
        files.discard()
