"""Whether a file of a known size fits on the disk, asked before a long write begins."""

import shutil
from pathlib import Path
from typing import Final

from ninfer.errors import ArtifactError

# What a full disk leaves no room for: directories, journals and the files of other programs.
MARGIN: Final = 64 << 20


def check_space(path: Path, needed: int) -> None:
    """Refuse a write of `needed` bytes to `path` when the disk has less and a margin of 64 MiB.

    Raises ArtifactError that gives both numbers. A missing folder is asked for by its nearest
    parent; creating it, or failing to, is up to the writer.
    """
    folder = path.absolute().parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < needed + MARGIN:
        raise ArtifactError(
            f"{path}: {needed:,} bytes are needed, and {MARGIN:,} to spare, but the disk of "
            f"{folder} has {free:,} free; make room or choose another folder"
        )
