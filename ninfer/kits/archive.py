"""A kit as one file: a gzipped tar with the same bytes for the same content, read with suspicion.

The manifest comes first, so that each file behind it is checked against it as it is read.
"""

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from ninfer.errors import KitError
from ninfer.kits.manifest import NAME, KitFile, Manifest, parse_manifest

_MOST_MANIFEST: Final = 64 << 20
_PIECE: Final = 1 << 20


def pack(folder: Path, manifest: Manifest, output: Path) -> None:
    """Write the kit whose files lie below `folder`. Owners, times and order are always the same."""
    part = output.with_name(output.name + ".tmp")
    with (
        part.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        text = manifest.to_json().encode()
        _add(tar, KitFile(NAME, len(text), ""), io.BytesIO(text))
        for file in manifest.files:
            with (folder / file.path).open("rb") as content:
                _add(tar, file, content)
    part.replace(output)


def read_manifest(archive: Path) -> Manifest:
    """The manifest alone. Raises KitError."""
    with _opened(archive) as tar:
        return _first(tar, archive)


def unpack(archive: Path, folder: Path | None) -> Manifest:
    """Check every byte and, given an empty folder, write the files there.

    Raises KitError for anything that is not exactly what the manifest lists: another digest, size
    or kind of entry, a path that leaves the kit, a file too many or missing, a cut archive.
    """
    with _opened(archive) as tar:
        manifest = _first(tar, archive)
        wanted = {file.path: file for file in manifest.files}
        while (member := tar.next()) is not None:
            file = wanted.pop(member.name, None)
            if file is None:
                raise KitError(f"{archive}: {member.name!r} is not a file of the manifest")
            if not member.isreg() or member.size != file.bytes:
                what = "no plain file" if not member.isreg() else f"{member.size:,} bytes"
                raise KitError(f"{archive}: {member.name} is {what}; {file.bytes:,} bytes expected")
            source = tar.extractfile(member)
            assert source is not None
            _take(source, file, folder, archive)
        if wanted:
            raise KitError(f"{archive}: {min(wanted)} is missing, and {len(wanted) - 1} more")
    return manifest


def _add(tar: tarfile.TarFile, file: KitFile, content: IO[bytes]) -> None:
    entry = tarfile.TarInfo(file.path)
    entry.size, entry.mode = file.bytes, 0o755 if file.executable else 0o644
    tar.addfile(entry, content)


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    try:
        # A stream: members are read in their order, and nothing is looked up behind the end.
        with (
            gzip.open(archive) as packed,
            tarfile.open(fileobj=packed, mode="r|") as tar,
        ):
            yield tar
            # Only the end of the stream has its checksum, which covers the manifest as well.
            while packed.read(_PIECE):
                pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise KitError(f"{archive}: {reason}") from error
    except (tarfile.TarError, zlib.error, EOFError, ValueError, UnicodeError) as error:
        raise KitError(f"{archive}: not a whole kit archive ({error})") from error


def _first(tar: tarfile.TarFile, archive: Path) -> Manifest:
    member = tar.next()
    if member is None or member.name != NAME or not member.isreg():
        raise KitError(f"{archive}: no kit: {NAME} is not its first entry")
    if member.size > _MOST_MANIFEST:
        raise KitError(f"{archive}: {NAME} has {member.size:,} bytes; at most {_MOST_MANIFEST:,}")
    source = tar.extractfile(member)
    assert source is not None
    try:
        text = source.read().decode()
    except UnicodeDecodeError as error:
        raise KitError(f"{archive}: {NAME} is not UTF-8") from error
    return parse_manifest(text, f"{archive}: {NAME}")


def _take(source: IO[bytes], file: KitFile, folder: Path | None, archive: Path) -> None:
    digest = hashlib.sha256()
    target = io.BytesIO() if folder is None else _target(folder / file.path)
    with target:
        while piece := source.read(_PIECE):
            digest.update(piece)
            if folder is not None:
                target.write(piece)
    if digest.hexdigest() != file.sha256:
        raise KitError(f"{archive}: {file.path} is damaged: its SHA-256 is not the manifest's")
    if folder is not None:
        (folder / file.path).chmod(0o755 if file.executable else 0o644)


def _target(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("xb")
