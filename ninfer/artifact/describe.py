"""What is in an artifact, as data, as lines of a table and as a JSON-able dict; needs no torch."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ninfer.artifact.directory import Directory, Entry, Identity, TensorEntry
from ninfer.artifact.model_map import Component, FileSpan, ModelMap


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
    @property
    def framing(self) -> int: ...
    @property
    def files(self) -> tuple[FileSpan, ...]: ...


@dataclass(frozen=True, slots=True)
class Total:
    """A count of objects and the bytes they take, padding between objects left out."""

    objects: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ArtifactSummary:
    """Directory of a file with totals. Resources count under their encoding in `by_format`.

    `file_size` counts the opened file; `model_map` is there from v3 on.
    """

    path: Path
    framing: int
    identity: Identity
    files: tuple[FileSpan, ...]
    model_map: ModelMap | None
    file_size: int
    payload_offset: int
    entries: tuple[Entry, ...]
    by_format: dict[str, Total]
    by_prefix: dict[str, Total]  # first part of the name, up to "/"

    def lines(self, *, objects: bool = True) -> list[str]:
        """Text lines: identity, sizes, totals, and unless switched off one line an object."""
        lines = [
            f"file      {self.path}",
            f"framing   v{self.framing}",
            f"identity  {_shown(str(self.identity))}",
            f"size      {self.file_size:,} bytes, payload from {self.payload_offset:,}",
            *(
                f"part      {_shown(str(span.path))}, {span.payload_bytes:,} payload bytes"
                for span in self.files[1:]
            ),
            f"objects   {len(self.entries):,}",
            *self._model_lines(),
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
            "framing": self.framing,
            "identity": {
                "model_id": self.identity.model_id,
                "weights_id": self.identity.weights_id,
            },
            "file_size": self.file_size,
            "payload_offset": self.payload_offset,
            "files": [
                {"path": span.path, "payload_bytes": span.payload_bytes} for span in self.files
            ],
            **self._model_dict(),
            "by_format": _total_dicts(self.by_format),
            "by_prefix": _total_dicts(self.by_prefix),
            "objects": [_entry_dict(entry) for entry in self.entries],
        }

    def _model_lines(self) -> list[str]:
        if self.model_map is None:
            return []
        found = self.model_map
        return [
            f"bindings  {len(found.bindings):,} parameters, {len(found.uses):,} uses",
            *(
                f"component {_shown(name)}{_component_notes(item)}"
                for name, item in found.components.items()
            ),
        ]

    def _model_dict(self) -> dict[str, Any]:
        if self.model_map is None:
            return {}
        return {
            "components": {
                name: {"target": item.target, "resources": dict(item.resources)}
                for name, item in self.model_map.components.items()
            },
            "bindings": len(self.model_map.bindings),
            "uses": len(self.model_map.uses),
        }


def describe(artifact: Described) -> ArtifactSummary:
    """Summarise an open artifact, or a header as read_header returns it."""
    entries = artifact.directory.entries
    return ArtifactSummary(
        path=artifact.path,
        framing=artifact.framing,
        identity=artifact.directory.identity,
        files=artifact.files,
        model_map=artifact.directory.model_map,
        file_size=artifact.file_size,
        payload_offset=artifact.payload_offset,
        entries=entries,
        by_format=_totals([(_format(entry), entry.bytes) for entry in entries]),
        by_prefix=_totals([(entry.name.split("/", 1)[0], entry.bytes) for entry in entries]),
    )


def _component_notes(component: Component) -> str:
    """Target, resources and proposal rows of a component, where it has them."""
    notes = []
    if component.target is not None:
        notes.append(f"for {_shown(component.target)}")
    if component.resources:
        notes.append(f"{len(component.resources)} resources")
    if component.proposal is not None:
        rows = component.proposal.rows
        notes.append(f"proposals from {f'{rows:,} rows' if rows else 'all rows'}")
    return f": {', '.join(notes)}" if notes else ""


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
