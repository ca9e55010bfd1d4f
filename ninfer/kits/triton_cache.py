"""A folder of compiled Triton kernels: valid where it lies, whichever machine filled it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ninfer.errors import ArtifactError
from ninfer.json_text import parse_json

_GROUP_FILES: Final = "__grp__*.json"


def relocate(folder: Path, place: Path | None = None) -> int:
    """Make a cache valid at the place where it lies now, or at `place`, to which it will be moved.

    Gives the number of files changed. Triton's group files hold the absolute paths of their
    members, which lie beside them, and a path that leads nowhere counts as a missing kernel. Raises
    ArtifactError for a group file that is not one.
    """
    root = place or folder
    return _rewrite(
        folder, lambda path, member: str(root / path.parent.relative_to(folder) / member)
    )


def strip_places(folder: Path) -> int:
    """Leave only the names of members in group files, so that the same kernels are the same bytes.

    Such a cache has to be relocated before it is used.
    """
    return _rewrite(folder, lambda path, member: member)


def _rewrite(folder: Path, place: Callable[[Path, str], str]) -> int:
    changed = 0
    for path in sorted(folder.rglob(_GROUP_FILES)):
        text = path.read_text(encoding="utf-8")
        content = parse_json(text, str(path), ArtifactError)
        members = content.get("child_paths") if isinstance(content, dict) else None
        if not isinstance(members, dict):
            raise ArtifactError(f"{path}: no group file of Triton's cache: child_paths is missing")
        moved = {name: place(path, Path(member).name) for name, member in members.items()}
        if moved != members:
            path.write_text(json.dumps({**content, "child_paths": moved}), encoding="utf-8")
            changed += 1
    return changed


def kernel_count(folder: Path) -> int:
    """Compiled kernels in a cache."""
    return sum(1 for _ in folder.rglob("*.cubin"))
