"""Which file an artifact is, beyond the name that it gives itself, without reading all of it."""

import hashlib
from pathlib import Path
from typing import Final

from ninfer.artifact.reader import Artifact
from ninfer.errors import ArtifactError

# Of each object, at both ends: any training that moves an object shows there.
_SAMPLE: Final = 4096


def fingerprint(artifact: Artifact) -> str:
    """A hash, 40 hexadecimal digits, of everything that is cheap to read.

    Directory, sizes and times of change of all files, and both ends of every object: two files are
    told apart unless one was made to look like the other. A copy with a new time is another file.
    Raises ArtifactError for a part file that is missing.
    """
    digest = hashlib.blake2b(digest_size=20)
    for span in artifact.files:
        path = artifact.path if span.path is None else artifact.path.parent / span.path
        digest.update(_stamp(path))
    digest.update(artifact.artifact_id)
    for entry in artifact.directory.entries:
        digest.update(repr(entry).encode())
        head = min(entry.bytes, _SAMPLE)
        digest.update(artifact.payload(entry.offset, head))
        digest.update(artifact.payload(entry.offset + entry.bytes - head, head))
    return digest.hexdigest()


def _stamp(path: Path) -> bytes:
    try:
        status = path.stat()
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
    return f"{status.st_size} {status.st_mtime_ns}\n".encode()
