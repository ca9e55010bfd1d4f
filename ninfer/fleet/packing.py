"""A file brought home from a machine in pieces: what came stays, and the whole is checked."""

import base64
import binascii
import hashlib
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ninfer.errors import HostBrokenError, VerificationError
from ninfer.fleet.box import Box
from ninfer.fleet.building import BuiltKit

PIECE: Final = 4 << 20
_SECONDS: Final = 300.0


def bring_home(
    box: Box, name: str, kit: BuiltKit, folder: Path, told: Callable[[int, int], None]
) -> Path:
    """The kit in `folder`, under its own name; `told` gets bytes so far and of all.

    An interrupted download goes on where it was. Raises HostBrokenError when a piece does not come
    and VerificationError when the whole has another SHA-256; the file has its name only after that.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / Path(kit.path).name
    part = target.with_name(f"{target.name}.{kit.sha256[:12]}.part")
    with part.open("ab") as file:
        # A piece that was cut is asked for again.
        file.truncate(min(file.tell(), kit.size) // PIECE * PIECE)
        while (have := file.seek(0, 2)) < kit.size:
            file.write(_piece(box, name, kit, have // PIECE))
            told(file.tell(), kit.size)
    digest = hashlib.sha256()
    with part.open("rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
    if digest.hexdigest() != kit.sha256:
        part.unlink()
        raise VerificationError(
            f"{name}: {target.name} has another SHA-256 than on the machine; download it again"
        )
    part.replace(target)
    return target


def _piece(box: Box, name: str, kit: BuiltKit, number: int) -> bytes:
    command = f"dd if={shlex.quote(kit.path)} bs={PIECE} skip={number} count=1 2>/dev/null | base64"
    ran = box.run(f'cd "$HOME" && {command}', timeout=_SECONDS)
    wanted = min(PIECE, kit.size - number * PIECE)
    try:
        data = base64.b64decode("".join(ran.out.split()), validate=True)
    except binascii.Error:
        data = b""
    if ran.status != 0 or len(data) != wanted:
        raise HostBrokenError(
            f"{name}: {len(data)} of {wanted} bytes at {number * PIECE:,} of {kit.path} came; the "
            "same command goes on from there",
            category="",
        )
    return data
