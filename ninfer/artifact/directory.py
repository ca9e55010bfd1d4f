"""The object directory: entries and geometry rules of every revision, JSON of v1 and v2."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from ninfer.artifact import schema
from ninfer.artifact.layouts import (
    RAW_BYTES,
    TENSOR_ALIGNMENT,
    encoded_bytes,
)
from ninfer.artifact.model_map import FileSpan, ModelMap
from ninfer.errors import DirectoryError

# A v1 directory names the model only; every file of that revision holds these weights.
V1_WEIGHTS_ID: Final = "groupwise-int"


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
    """Which model the weights are for, and which set of weights of it they are.

    A v3 file states formats object by object, so there `weights_id` may be empty.
    """

    model_id: str
    weights_id: str

    def __str__(self) -> str:
        return f"{self.model_id}/{self.weights_id}" if self.weights_id else self.model_id


@dataclass(frozen=True)
class Directory:
    """Identity and objects in file order; `model_map` and `files` are what v3 adds.

    `entries` has the names, formats and layouts in the spelling of v2 whatever the revision.
    """

    identity: Identity
    entries: tuple[Entry, ...]
    model_map: ModelMap | None = None
    files: tuple[FileSpan, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, Entry]:
        """Entries by object name."""
        return MappingProxyType({entry.name: entry for entry in self.entries})


def parse_directory(text: bytes) -> Directory:
    """Read the JSON directory of v2; member order, whitespace and escapes carry no meaning.

    Raises FramingError when the bytes are not one JSON document in UTF-8 with unique member names,
    and DirectoryError when the document breaks the closed schema or names an object twice.
    """
    root = schema.members(schema.load_json(text), ("identity", "objects"), "directory root")
    identity = schema.members(root["identity"], ("model_id", "weights_id"), "identity")
    return Directory(
        Identity(
            schema.text(identity["model_id"], "identity: model_id"),
            schema.text(identity["weights_id"], "identity: weights_id"),
        ),
        parse_entries(root["objects"], _parse_entry),
    )


def parse_directory_v1(text: bytes) -> Directory:
    """Read the JSON directory of v1, which names the model and not the weights; see above."""
    root = schema.members(schema.load_json(text), ("model_id", "objects"), "directory root")
    model_id = schema.text(root["model_id"], "directory: model_id")
    return Directory(
        Identity(model_id, V1_WEIGHTS_ID), parse_entries(root["objects"], _parse_entry)
    )


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
    """Compact v2 JSON in the member order that published writers use.

    Raises DirectoryError for a name that has no UTF-8 form.
    """
    identity = directory.identity
    return schema.encode_json(
        {
            "identity": {"model_id": identity.model_id, "weights_id": identity.weights_id},
            "objects": [_encode_entry(entry) for entry in directory.entries],
        }
    )


def check_unique(entries: Iterable[Entry]) -> None:
    """Raise DirectoryError when two objects have one name."""
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            raise DirectoryError(f"object {entry.name!r} is in the directory twice")
        seen.add(entry.name)


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


def parse_entries(value: object, parse: Callable[[object, int], Entry]) -> tuple[Entry, ...]:
    """The objects of a directory, each parsed from its JSON value and its index."""
    if not isinstance(value, list) or not value:
        raise DirectoryError("directory: objects must be a non-empty array")
    entries = tuple(parse(item, index) for index, item in enumerate(value))
    check_unique(entries)
    return entries


def _parse_entry(value: object, index: int) -> Entry:
    where = f"objects[{index}]"
    found = schema.json_object(value, where)
    name = schema.text(found.get("name"), f"{where}: name")
    where = f"object {name!r}"
    match found.get("kind"):
        case "tensor":
            names = ("name", "kind", "shape", "format", "layout", "offset", "bytes")
            item = schema.members(value, names, where)
            return TensorEntry(
                name,
                schema.shape(item["shape"], where),
                schema.text(item["format"], f"{where}: format"),
                schema.text(item["layout"], f"{where}: layout"),
                schema.integer(item["offset"], 0, f"{where}: offset"),
                schema.integer(item["bytes"], 1, f"{where}: bytes"),
            )
        case "resource":
            item = schema.members(value, ("name", "kind", "encoding", "offset", "bytes"), where)
            encoding = schema.text(item["encoding"], f"{where}: encoding")
            if encoding != RAW_BYTES:
                raise DirectoryError(f"{where}: unknown encoding {encoding!r}; known: {RAW_BYTES}")
            return ResourceEntry(
                name,
                encoding,
                schema.integer(item["offset"], 0, f"{where}: offset"),
                schema.integer(item["bytes"], 1, f"{where}: bytes"),
            )
        case kind:
            shown = repr(kind) if isinstance(kind, str) else schema.kind(kind)
            raise DirectoryError(f"{where}: kind must be 'tensor' or 'resource', got {shown}")
