"""The object directory of container v2: entries, a strict parser, geometry rules, an encoder."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from ninfer.artifact.layouts import (
    MAX_SIZE,
    RAW_BYTES,
    TENSOR_ALIGNMENT,
    encoded_bytes,
)
from ninfer.errors import DirectoryError, FramingError


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor object. `offset` counts from the start of the payload."""

    name: str
    shape: tuple[int, ...]
    format: str
    layout: str
    offset: int
    bytes: int

    @property
    def alignment(self) -> int:
        """What `offset` must be a multiple of."""
        return TENSOR_ALIGNMENT


@dataclass(frozen=True, slots=True)
class ResourceEntry:
    """A file carried along, such as tokenizer.json."""

    name: str
    encoding: str
    offset: int
    bytes: int

    @property
    def alignment(self) -> int:
        """What `offset` must be a multiple of."""
        return 1


Entry = TensorEntry | ResourceEntry


@dataclass(frozen=True, slots=True)
class Identity:
    """Which model the weights are for, and which set of weights of it they are."""

    model_id: str
    weights_id: str

    def __str__(self) -> str:
        return f"{self.model_id}/{self.weights_id}"


@dataclass(frozen=True)
class Directory:
    """Identity and objects in file order."""

    identity: Identity
    entries: tuple[Entry, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Entry]:
        """Entries by object name."""
        return MappingProxyType({entry.name: entry for entry in self.entries})


def parse_directory(text: bytes) -> Directory:
    """Read the JSON directory; member order, whitespace and escapes carry no meaning.

    Raises FramingError when the bytes are not one JSON document in UTF-8 with unique member names,
    and DirectoryError when the document breaks the closed schema or names an object twice.
    """
    root = _members(_load(text), ("identity", "objects"), "directory root")
    identity = _members(root["identity"], ("model_id", "weights_id"), "identity")
    objects = root["objects"]
    if not isinstance(objects, list) or not objects:
        raise DirectoryError("directory: objects must be a non-empty array")
    directory = Directory(
        Identity(
            _text(identity["model_id"], "identity: model_id"),
            _text(identity["weights_id"], "identity: weights_id"),
        ),
        tuple(_parse_entry(item, index) for index, item in enumerate(objects)),
    )
    _check_unique(directory.entries)
    return directory


def check_geometry(entries: Iterable[Entry], payload_bytes: int) -> None:
    """Walk the objects in order: aligned, apart, inside the payload, exactly as long as encoded.

    Raises DirectoryError that names the first object to break a rule.
    """
    cursor = 0
    for entry in entries:
        where = f"object {entry.name!r}"
        if entry.offset < cursor:
            raise DirectoryError(
                f"{where}: offset {entry.offset} overlaps the object that ends at {cursor}"
            )
        if entry.offset % entry.alignment:
            raise DirectoryError(
                f"{where}: offset {entry.offset} is not a multiple of {entry.alignment}"
            )
        cursor = entry.offset + entry.bytes
        if cursor > payload_bytes:
            raise DirectoryError(
                f"{where}: ends at {cursor}, beyond the {payload_bytes} payload bytes of the file;"
                " the file is cut short or its directory is wrong"
            )
        if isinstance(entry, TensorEntry):
            _check_encoded(entry, where)


def encode_directory(directory: Directory) -> bytes:
    """Compact JSON in the member order that published writers use.

    Raises DirectoryError for a name that has no UTF-8 form.
    """
    identity = directory.identity
    root = {
        "identity": {"model_id": identity.model_id, "weights_id": identity.weights_id},
        "objects": [_encode_entry(entry) for entry in directory.entries],
    }
    text = json.dumps(root, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise DirectoryError(
            f"a name holds {error.object[error.start]!r}, a lone surrogate"
        ) from None


def _check_encoded(entry: TensorEntry, where: str) -> None:
    try:
        exact = encoded_bytes(entry.format, entry.layout, entry.shape)
    except DirectoryError as error:
        raise DirectoryError(f"{where}: {error}") from None
    if entry.bytes != exact:
        raise DirectoryError(
            f"{where}: bytes is {entry.bytes}, but {entry.format} of shape {list(entry.shape)}"
            f" takes {exact}"
        )


def _encode_entry(entry: Entry) -> dict[str, Any]:
    if isinstance(entry, TensorEntry):
        return {
            "name": entry.name,
            "kind": "tensor",
            "shape": list(entry.shape),
            "format": entry.format,
            "layout": entry.layout,
            "offset": entry.offset,
            "bytes": entry.bytes,
        }
    return {
        "name": entry.name,
        "kind": "resource",
        "encoding": entry.encoding,
        "offset": entry.offset,
        "bytes": entry.bytes,
    }


def _load(text: bytes) -> object:
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FramingError(f"directory is not UTF-8 at byte {error.start}") from None
    try:
        return json.loads(decoded, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise FramingError("directory is not usable JSON: nested too deeply") from None
    except ValueError as error:
        # Besides syntax errors: an integer with more digits than Python will convert.
        raise FramingError(f"directory is not valid JSON: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise FramingError(f"directory has the JSON member {twice!r} twice in one object")
    return members


def _no_constant(word: str) -> object:
    raise FramingError(f"directory holds {word}, which is not JSON")


def _members(value: object, wanted: tuple[str, ...], where: str) -> dict[str, Any]:
    """`value` as an object with exactly the wanted members."""
    if not isinstance(value, dict):
        raise DirectoryError(f"{where} must be a JSON object, got {_kind(value)}")
    for name in wanted:
        if name not in value:
            raise DirectoryError(f"{where} lacks the member {name!r}")
    if len(value) != len(wanted):
        extra = next(name for name in value if name not in wanted)
        raise DirectoryError(f"{where} has an unknown member {extra!r}")
    return value


def _parse_entry(value: object, index: int) -> Entry:
    where = f"objects[{index}]"
    if not isinstance(value, dict):
        raise DirectoryError(f"{where} must be a JSON object, got {_kind(value)}")
    name = _text(value.get("name"), f"{where}: name")
    where = f"object {name!r}"
    match value.get("kind"):
        case "tensor":
            names = ("name", "kind", "shape", "format", "layout", "offset", "bytes")
            item = _members(value, names, where)
            return TensorEntry(
                name,
                _shape(item["shape"], where),
                _text(item["format"], f"{where}: format"),
                _text(item["layout"], f"{where}: layout"),
                _integer(item["offset"], 0, f"{where}: offset"),
                _integer(item["bytes"], 1, f"{where}: bytes"),
            )
        case "resource":
            item = _members(value, ("name", "kind", "encoding", "offset", "bytes"), where)
            encoding = _text(item["encoding"], f"{where}: encoding")
            if encoding != RAW_BYTES:
                raise DirectoryError(f"{where}: unknown encoding {encoding!r}; known: {RAW_BYTES}")
            return ResourceEntry(
                name,
                encoding,
                _integer(item["offset"], 0, f"{where}: offset"),
                _integer(item["bytes"], 1, f"{where}: bytes"),
            )
        case kind:
            shown = repr(kind) if isinstance(kind, str) else _kind(kind)
            raise DirectoryError(f"{where}: kind must be 'tensor' or 'resource', got {shown}")


def _shape(value: object, where: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise DirectoryError(f"{where}: shape must be an array, got {_kind(value)}")
    return tuple(_integer(size, 1, f"{where}: shape[{i}]") for i, size in enumerate(value))


def _integer(value: object, least: int, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise DirectoryError(f"{where} must be an integer, got {_kind(value)}")
    if not least <= value <= MAX_SIZE:
        shown = value if abs(value) < 1 << 128 else "a very large number"
        raise DirectoryError(f"{where} must lie in {least}..2**63 - 1, got {shown}")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise DirectoryError(f"{where} must be a non-empty string, got {_kind(value)}")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise DirectoryError(f"{where} holds a lone surrogate, which has no UTF-8 form")
    return value


def _kind(value: object) -> str:
    """JSON's word for the type of a value."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str) and not value:
        return "an empty string"
    names = {dict: "an object", list: "an array", str: "a string", int: "an integer"}
    return names.get(type(value), "a float")


def _check_unique(entries: Iterable[Entry]) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            raise DirectoryError(f"object {entry.name!r} is in the directory twice")
        seen.add(entry.name)
