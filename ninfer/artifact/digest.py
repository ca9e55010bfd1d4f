"""SHA-256 of a file, with progress."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ninfer.errors import ArtifactError

_CHUNK: Final = 8 << 20


def file_sha256(path: Path, progress: Callable[[str, int, int], None], name: str = "") -> str:
    """Lower-case hexadecimal SHA-256 of a whole file; progress in bytes, under `name` if given.

    Raises ArtifactError when the file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        total, done = path.stat().st_size, 0
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                done += len(chunk)
                progress(name or path.name, done, total)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
    return digest.hexdigest()
