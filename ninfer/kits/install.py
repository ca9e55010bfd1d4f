"""Install a kit: all of it is checked before any of it is in place; the switch is one rename."""

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ninfer.errors import KitError
from ninfer.kits.archive import read_manifest, unpack
from ninfer.kits.home import TRITON, current_link
from ninfer.kits.manifest import NAME, Manifest, parse_manifest
from ninfer.kits.stack import Stack
from ninfer.kits.triton_cache import relocate
from ninfer.version import VERSION

_SPARE: Final = 1 << 28
_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Installed:
    """A kit in its place."""

    folder: Path
    manifest: Manifest


def verify(archive: Path, sha256: str = "") -> Manifest:
    """Check a kit whole, writing nothing. Raises KitError."""
    _check_digest(archive, sha256)
    return unpack(archive, None)


def install(
    archive: Path,
    home: Path,
    stack: Stack,
    architecture: int | None,
    *,
    sha256: str = "",
    force: bool = False,
) -> Installed:
    """Put a kit below `home` and make it the current one of its architecture.

    `architecture` is that of this machine's card, None without one. Raises KitError, with nothing
    changed, for a kit that is damaged, that is for another card or stack (unless `force`), or that
    does not fit on the disk.
    """
    _check_digest(archive, sha256)
    manifest = read_manifest(archive)
    if not force:
        check_match(manifest, stack, architecture, archive)
    home.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(home).free
    if free < manifest.bytes + _SPARE:
        raise KitError(f"{home}: {free:,} bytes free, the kit needs {manifest.bytes + _SPARE:,}")
    staging = Path(tempfile.mkdtemp(prefix=".staging-", dir=home))
    try:
        unpack(archive, staging)
        (staging / NAME).write_text(manifest.to_json(), encoding="utf-8")
        folder = home / manifest.id
        _rename_over(staging, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    relocate(folder / TRITON)
    _point(current_link(home, manifest.architecture), manifest.id)
    return Installed(folder, manifest)


def check_match(manifest: Manifest, stack: Stack, architecture: int | None, archive: Path) -> None:
    """Raise KitError naming the facts in which a kit and this machine differ."""
    differences = manifest.stack.differences(stack)
    if manifest.ninfer != VERSION:
        differences.insert(0, f"ninfer is {VERSION} here and {manifest.ninfer} in the kit")
    if architecture not in (None, manifest.architecture):
        differences.insert(
            0, f"the card is sm_{architecture}, the kit for sm_{manifest.architecture}"
        )
    if differences:
        raise KitError(
            f"{archive}: not for this machine: {'; '.join(differences)}. Its kernels would not be "
            "found; take the kit of this stack, or --force"
        )


def installed(folder: Path) -> Installed:
    """The kit in a folder. Raises KitError when there is none."""
    path = folder / NAME
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KitError(f"{path}: {error}") from error
    return Installed(folder, parse_manifest(text, str(path)))


def damaged(kit: Installed) -> list[str]:
    """Files of an installed kit that are not as they came; those that installing rewrites aside."""
    return [
        file.path
        for file in kit.manifest.files
        if "__grp__" not in file.path and _digest(kit.folder / file.path) != file.sha256
    ]


def _check_digest(archive: Path, sha256: str) -> None:
    if not archive.is_file():
        raise KitError(f"{archive}: no such file")
    if sha256 and _digest(archive) != sha256.lower():
        raise KitError(f"{archive}: its SHA-256 is {_digest(archive)}, not {sha256}")


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    except OSError:
        return ""
    return digest.hexdigest()


def _rename_over(staging: Path, folder: Path) -> None:
    """Put a folder in the place of another one, which is gone only when the new one is there."""
    staging.chmod(0o755)
    if not folder.exists():
        staging.rename(folder)
        return
    old = Path(tempfile.mkdtemp(prefix=".old-", dir=folder.parent))
    os.rename(folder, old / "kit")
    try:
        os.rename(staging, folder)
    except OSError:
        os.rename(old / "kit", folder)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _point(link: Path, name: str) -> None:
    """Let a link name another folder beside it, in one step."""
    part = link.with_name(f".{link.name}-{os.getpid()}")
    part.unlink(missing_ok=True)
    part.symlink_to(name, target_is_directory=True)
    part.replace(link)


def description(kit: Installed) -> str:
    """One JSON object about an installed kit."""
    manifest = kit.manifest
    values = {
        "id": manifest.id,
        "folder": str(kit.folder),
        "architecture": manifest.architecture,
        "triton_kernels": len(manifest.triton_kernels),
        "cuda_kernels": len(manifest.cuda_kernels),
        "bytes": manifest.bytes,
    }
    return json.dumps(values)
