"""Artifacts that come with the package: their names, where they lie, size and SHA-256; no torch."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ninfer.errors import UsageError

NAMES: Final = ("tiny", "tiny-moe")
FOLDER: Final = Path(__file__).resolve().parent.parent / "assets"
# Written by `python -m recipes.tiny.make` beside the files.
RECORDS: Final = "artifacts.json"


@dataclass(frozen=True, slots=True)
class PackagedArtifact:
    """What a file of the package has to be."""

    name: str
    id: str  # model id and weights id
    bytes: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.id} (of the package)"


def packaged_artifacts() -> tuple[PackagedArtifact, ...]:
    """The record of every artifact of the package."""
    values = json.loads((FOLDER / RECORDS).read_text(encoding="utf-8"))
    return tuple(PackagedArtifact(**value) for value in values)


def path_of_name(name: str) -> Path:
    """The file of a name in NAMES."""
    return FOLDER / f"{name}.ninfer"


def locate(artifact: Path) -> Path:
    """The file that a user means: an existing file, else the artifact of the package so named.

    Other paths are given back as they are. Raises UsageError for a bare word that is neither.
    """
    if artifact.exists() and not (artifact.is_dir() and str(artifact) in NAMES):
        return artifact
    if str(artifact) in NAMES:
        return path_of_name(str(artifact))
    if len(artifact.parts) == 1 and not artifact.suffix:
        raise UsageError(
            f"{str(artifact)!r} is neither a file nor an artifact of the package "
            f"({', '.join(NAMES)})"
        )
    return artifact


def record_of(path: Path) -> PackagedArtifact | None:
    """The record of a file that lies in the package; None for any other file."""
    resolved = path.resolve()
    found = (item for item in packaged_artifacts() if path_of_name(item.name) == resolved)
    return next(found, None)
