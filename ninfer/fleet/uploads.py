"""Files onto a machine in pieces, so that a broken link costs one piece and a rerun goes on."""

import hashlib
import shlex
from pathlib import Path
from typing import Final

from ninfer.errors import HostBrokenError, UsageError, VerificationError
from ninfer.fleet.stages import Link

_PIECE: Final = 4 << 20
# A piece at 70 KB/s; a slower machine would not serve anybody.
_PIECE_SECONDS: Final = 60.0
_TRIES: Final = 2
_CHANGED: Final = 9


def digest_of(path: Path) -> str:
    """SHA-256 of a file. Raises UsageError when it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def put_file(link: Link, local: Path, name: str, sha256: str) -> int:
    """Make `name` in the machine's folder that file; returns the bytes that had to be sent.

    What an earlier call sent stays and is gone on with; the name is there only when the whole
    file is, with its digest. Raises VerificationError when it arrives changed twice.
    """
    if link.run(f"[ -e {shlex.quote(name)} ] && {_matches(name, sha256)}", timeout=600).status == 0:
        return 0
    part, sent = f"{name}.{sha256[:16]}.part", 0
    for _ in range(_TRIES):
        sent += _send(link, local, part)
        moved = link.run(
            f"{_matches(part, sha256)} && mv {shlex.quote(part)} {shlex.quote(name)}", timeout=600
        )
        if moved.status == 0:
            return sent
        link.need(f"rm -f {shlex.quote(part)}")
        link.say(f"{local.name}: arrived with another SHA-256; sending it again")
    raise VerificationError(f"{local}: arrives with another SHA-256 than {sha256}, twice")


def _matches(name: str, sha256: str) -> str:
    return f"echo '{sha256}  {name}' | sha256sum -c --status"


def _send(link: Link, local: Path, part: str) -> int:
    """Append what the machine does not have yet; the place is asked for before every piece."""
    quoted, sent = shlex.quote(part), 0
    total = local.stat().st_size
    with local.open("rb") as file:
        while True:
            have = int(link.need(f"stat -c %s {quoted} 2>/dev/null || echo 0"))
            if have >= total:
                return sent
            file.seek(have)
            piece = file.read(_PIECE)
            # A repeated command finds a longer file than it expects, and adds nothing.
            ran = link.run(
                f"[ $(stat -c %s {quoted} 2>/dev/null || echo 0) = {have} ] || exit {_CHANGED}; "
                f"cat >> {quoted}",
                stdin=piece,
                timeout=_PIECE_SECONDS,
            )
            if ran.status not in (0, _CHANGED):
                raise HostBrokenError(
                    f"{local.name}: not taken at byte {have:,}: {ran.err.strip()[-200:]}",
                    category="disk",
                )
            sent += len(piece)
            link.say(f"{local.name}: {min(100, 100 * (have + len(piece)) // total)} %")
