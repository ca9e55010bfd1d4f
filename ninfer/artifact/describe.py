"""What is in an artifact, as data, as lines of a table and as a JSON-able dict; needs no torch."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ninfer.artifact.directory import Directory, Entry, Identity, TensorEntry


class Described(Protocol):
    """What `describe` reads: an open Artifact, or the header of a file."""

    @property
    def path(self) -> Path: ...
    @property
    def directory(self) -> Directory: ...
    @property
    def payload_offset(self) -> int: ...
    @property
    def file_size(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Total:
    """A count of objects and the bytes they take, padding between objects left out."""

    objects: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ArtifactSummary:
    """Directory of a file with totals. Resources count under their encoding in `by_format`."""

    path: Path
    identity: Identity
    file_size: int
    payload_offset: int
    entries: tuple[Entry, ...]
    by_format: dict[str, Total]
    by_prefix: dict[str, Total]  # first part of the name, up to "/"

    def lines(self, *, objects: bool = True) -> list[str]:
        """Text lines: identity, sizes, totals, and unless switched off one line an object."""
        lines = [
            f"file      {self.path}",
            f"identity  {_shown(str(self.identity))}",
            f"size      {self.file_size:,} bytes, payload from {self.payload_offset:,}",
            f"objects   {len(self.entries):,}",
            "",
            *_total_lines("format", self.by_format),
            "",
            *_total_lines("prefix", self.by_prefix),
        ]
        if objects:
            header = ("object", "format", "shape", "offset", "bytes")
            rows = [
                (_shown(e.name), _format(e), _shape(e), f"{e.offset:,}", f"{e.bytes:,}")
                for e in self.entries
            ]
            lines += ["", *_table([header, *rows], left=3)]
        return lines

    def as_dict(self) -> dict[str, Any]:
        """The summary as a dict of JSON types; byte counts are numbers, shapes are lists."""
        return {
            "path": str(self.path),
            "identity": {
                "model_id": self.identity.model_id,
                "weights_id": self.identity.weights_id,
            },
            "file_size": self.file_size,
            "payload_offset": self.payload_offset,
            "by_format": _total_dicts(self.by_format),
            "by_prefix": _total_dicts(self.by_prefix),
            "objects": [_entry_dict(entry) for entry in self.entries],
        }


def describe(artifact: Described) -> ArtifactSummary:
    """Summarise an open artifact, or a header as read_header returns it."""
    entries = artifact.directory.entries
    return ArtifactSummary(
        path=artifact.path,
        identity=artifact.directory.identity,
        file_size=artifact.file_size,
        payload_offset=artifact.payload_offset,
        entries=entries,
        by_format=_totals([(_format(entry), entry.bytes) for entry in entries]),
        by_prefix=_totals([(entry.name.split("/", 1)[0], entry.bytes) for entry in entries]),
    )


def _entry_dict(entry: Entry) -> dict[str, Any]:
    common = {"name": entry.name, "offset": entry.offset, "bytes": entry.bytes}
    if isinstance(entry, TensorEntry):
        shape = list(entry.shape)
        kind = {"kind": "tensor", "shape": shape, "format": entry.format, "layout": entry.layout}
        return common | kind
    return common | {"kind": "resource", "encoding": entry.encoding}


def _total_dicts(totals: dict[str, Total]) -> dict[str, dict[str, int]]:
    return {name: {"objects": t.objects, "bytes": t.bytes} for name, t in totals.items()}


def _totals(pairs: list[tuple[str, int]]) -> dict[str, Total]:
    """Totals by key, the most bytes first."""
    objects = Counter(key for key, _ in pairs)
    sizes: Counter[str] = Counter()
    for key, size in pairs:
        sizes[key] += size
    return {key: Total(objects[key], size) for key, size in sizes.most_common()}


def _total_lines(title: str, totals: dict[str, Total]) -> list[str]:
    rows = [(_shown(key), f"{t.objects:,}", f"{t.bytes:,}") for key, t in totals.items()]
    return _table([(title, "objects", "bytes"), *rows], left=1)


def _table(rows: list[tuple[str, ...]], left: int) -> list[str]:
    """Columns two blanks apart; the first `left` of them flush left, the others flush right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(_aligned(row, widths, left)).rstrip() for row in rows]


def _aligned(row: tuple[str, ...], widths: list[int], left: int) -> list[str]:
    return [
        cell.ljust(width) if index < left else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def _format(entry: Entry) -> str:
    return entry.format if isinstance(entry, TensorEntry) else entry.encoding


def _shape(entry: Entry) -> str:
    return str(list(entry.shape)) if isinstance(entry, TensorEntry) else "-"


def _shown(text: str) -> str:
    """Text of a file, safe to print: control characters as escapes."""
    return text if text.isprintable() else repr(text)[1:-1]
