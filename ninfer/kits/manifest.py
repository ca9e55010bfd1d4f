"""MANIFEST.json of a kit: what it is for, what it was made of, and every file in it."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from ninfer.errors import KitError
from ninfer.json_text import parse_json
from ninfer.kits.stack import Stack

SCHEMA: Final = 1
NAME: Final = "MANIFEST.json"
# No kit comes near these; a header that claims more is not read on.
MOST_BYTES: Final = 4 << 30
MOST_FILES: Final = 100_000
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_ID: Final = re.compile(r"[a-z0-9][a-z0-9._+-]{0,127}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class KitFile:
    """One file: its path in the kit, size in bytes, and digest."""

    path: str
    bytes: int
    sha256: str
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that a kit says about itself."""

    id: str
    ninfer: str  # version
    revision: str
    architecture: int  # 90 is sm_90
    stack: Stack
    nvrtc: str
    models: tuple[str, ...]
    triton_kernels: tuple[str, ...]
    cuda_kernels: tuple[str, ...]
    files: tuple[KitFile, ...]

    def to_json(self) -> str:
        """The same text for the same kit."""
        values = {"schema": SCHEMA, **asdict(self)}
        return json.dumps(values, indent=1, sort_keys=True) + "\n"

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(file.bytes for file in self.files)


def parse_manifest(text: str, where: str) -> Manifest:
    """The manifest in a text. Raises KitError, naming `where` and the value that is wrong."""
    values = parse_json(text, where, KitError)
    if not isinstance(values, dict) or values.get("schema") != SCHEMA:
        found = values.get("schema") if isinstance(values, dict) else type(values).__name__
        raise KitError(f"{where}: schema is {found!r}, this version reads {SCHEMA}")
    read = _Reader(values, where)
    stack = _Reader(read.take("stack", dict), f"{where}: stack")
    manifest = Manifest(
        id=read.matching("id", _ID),
        ninfer=read.take("ninfer", str),
        revision=read.take("revision", str),
        architecture=read.take("architecture", int),
        stack=Stack.of({name: stack.take(name, str) for name in Stack.__slots__}),
        nvrtc=read.take("nvrtc", str),
        models=read.texts("models"),
        triton_kernels=read.texts("triton_kernels"),
        cuda_kernels=read.texts("cuda_kernels"),
        files=tuple(_file(item, where) for item in read.take("files", list)),
    )
    _check_files(manifest, where)
    return manifest


def safe_path(path: str) -> bool:
    """Whether a path stays below the folder it is joined to, in one spelling only."""
    parts = PurePosixPath(path)
    odd = "\\" in path or "\0" in path or path != parts.as_posix() or path in ("", ".")
    return not (odd or parts.is_absolute() or ".." in parts.parts)


def _check_files(manifest: Manifest, where: str) -> None:
    paths = [file.path for file in manifest.files]
    if len(paths) > MOST_FILES or manifest.bytes > MOST_BYTES:
        size = f"{len(paths):,} files, {manifest.bytes:,} bytes"
        raise KitError(f"{where}: {size}; at most {MOST_FILES:,} and {MOST_BYTES:,}")
    for path in paths:
        if not safe_path(path) or path == NAME:
            raise KitError(f"{where}: {path!r} is no path of a file in a kit")
    seen: set[str] = set()
    for path in paths:
        # Two names of one file where case does not count.
        if path.casefold() in seen:
            raise KitError(f"{where}: {path!r} is listed twice")
        seen.add(path.casefold())


def _file(values: Any, where: str) -> KitFile:
    read = _Reader(values, f"{where}: files")
    size = read.take("bytes", int)
    if size < 0:
        raise KitError(f"{where}: files: bytes is {size}")
    return KitFile(
        path=read.take("path", str),
        bytes=size,
        sha256=read.matching("sha256", _SHA256),
        executable=read.take("executable", bool),
    )


class _Reader:
    """Members of an object by name and type."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, Mapping):
            raise KitError(f"{where}: is {type(values).__name__}, not an object")
        self._values, self._where = values, where

    def take(self, name: str, kind: type) -> Any:
        value = self._values.get(name)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise KitError(f"{self._where}: {name} is {value!r}, not of type {kind.__name__}")
        return value

    def matching(self, name: str, pattern: re.Pattern[str]) -> str:
        value = self.take(name, str)
        if not pattern.fullmatch(value):
            raise KitError(f"{self._where}: {name} is {value!r}")
        return str(value)

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.take(name, list)
        if not all(isinstance(value, str) for value in values):
            raise KitError(f"{self._where}: {name} holds something else than text")
        return tuple(values)
