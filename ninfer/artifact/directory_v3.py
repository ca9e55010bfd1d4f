"""The v3 directory as JSON: objects by id, components, files, and the whole document.

Spellings are those of .ninfer container v3; entries come out in the spelling of v2.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ninfer.artifact import schema
from ninfer.artifact.bindings import (
    encode_binding,
    encode_use,
    parse_binding,
    parse_uses,
)
from ninfer.artifact.directory import (
    Directory,
    Entry,
    Identity,
    ResourceEntry,
    TensorEntry,
    parse_entries,
)
from ninfer.artifact.layouts import BLOCK_SCALE, CONTIGUOUS, RAW_BYTES, ROW_SCALE, ROW_SPLIT
from ninfer.artifact.model_map import (
    TEXT,
    Component,
    FileSpan,
    ModelMap,
    Proposal,
)
from ninfer.errors import DirectoryError

FORMAT_SPELLINGS: Final = MappingProxyType(
    {
        "bf16": "BF16",
        "fp32": "FP32",
        "int32": "I32",
        "q4_g64_fp16": "Q4G64_F16S",
        "q5_g64_fp16": "Q5G64_F16S",
        "q6_g64_fp16": "Q6G64_F16S",
        "q8_g32_fp16": "W8G32_F16S",
        "nvfp4": "NVFP4",
        "fp8_e4m3fn_row_bf16": "FP8_E4M3FN_ROW_BF16S",
    }
)
LAYOUT_SPELLINGS: Final = MappingProxyType(
    {
        "contiguous_le_v1": CONTIGUOUS,
        "row_split_k128_v1": ROW_SPLIT,
        "block_scale_k16_m128x4_v1": BLOCK_SCALE,
        "row_scale_v1": ROW_SCALE,
    }
)
_FORMAT_WORDS: Final = {name: word for word, name in FORMAT_SPELLINGS.items()}
_LAYOUT_WORDS: Final = {name: word for word, name in LAYOUT_SPELLINGS.items()}
RAW_BYTES_V3: Final = "raw_bytes_v1"
# The model id of a file whose metadata has no name.
UNNAMED: Final = "unnamed"

_ROOT: Final = ("components", "objects", "bindings", "uses", "files")
_OPEN: Final = ("metadata", "provenance")


def parse_directory_v3(text: bytes) -> Directory:
    """Read the JSON directory of v3.

    The public name and the weights id are taken from `metadata` where it has them. Raises
    FramingError when the bytes are not one JSON document in UTF-8 with unique member names, and
    DirectoryError when the document breaks the schema, or when a binding, use or resource names an
    object that is not there or elements beyond its end.
    """
    root = schema.members(schema.load_json(text), _ROOT, "directory root", optional=_OPEN)
    entries = parse_entries(root["objects"], _parse_object)
    by_id = {entry.name: entry for entry in entries}
    bindings = {
        schema.label(name, "bindings: a parameter name"): parse_binding(
            value, by_id, f"binding {name!r}"
        )
        for name, value in schema.json_object(root["bindings"], "bindings").items()
    }
    opened = {
        name: schema.open_object(root[name], name) if name in root else None for name in _OPEN
    }
    model_map = ModelMap(
        _parse_components(root["components"], by_id),
        bindings,
        parse_uses(root["uses"], bindings, by_id),
        opened["metadata"],
        opened["provenance"],
    )
    files = _parse_files(root["files"])
    return Directory(identity_of(model_map.metadata), entries, model_map, files)


def identity_of(metadata: Mapping[str, Any] | None) -> Identity:
    """Model and weights that open metadata name; a file without a name is called UNNAMED."""
    found = metadata or {}
    name, weights = found.get("name"), found.get("weights_id")
    return Identity(
        name if isinstance(name, str) and name else UNNAMED,
        weights if isinstance(weights, str) else "",
    )


def encode_directory_v3(directory: Directory) -> bytes:
    """Compact v3 JSON. Raises DirectoryError for a name that has no UTF-8 form."""
    model_map = directory.model_map
    assert model_map is not None, "a v3 directory has a model map"
    root: dict[str, Any] = {
        "components": {
            name: _encode_component(item) for name, item in model_map.components.items()
        },
        "objects": [_encode_object(entry) for entry in directory.entries],
        "bindings": {name: encode_binding(item) for name, item in model_map.bindings.items()},
        "uses": [encode_use(use) for use in model_map.uses],
        "files": [{"path": f.path, "payload_bytes": f.payload_bytes} for f in directory.files],
    }
    for name, value in (("metadata", model_map.metadata), ("provenance", model_map.provenance)):
        if value is not None:
            root[name] = value
    return schema.encode_json(root)


def _encode_object(entry: Entry) -> dict[str, Any]:
    if isinstance(entry, TensorEntry):
        return {
            "id": entry.name,
            "kind": "tensor",
            "shape": list(entry.shape),
            "format": _FORMAT_WORDS[entry.format],
            "layout": _LAYOUT_WORDS[entry.layout],
            "offset": entry.offset,
            "bytes": entry.bytes,
        }
    return {
        "id": entry.name,
        "kind": "resource",
        "encoding": RAW_BYTES_V3,
        "offset": entry.offset,
        "bytes": entry.bytes,
    }


def _encode_component(component: Component) -> dict[str, Any]:
    item: dict[str, Any] = {"config": component.config}
    if component.target is not None:
        item["target"] = component.target
    if component.resources:
        item["resources"] = component.resources
    if component.proposal is not None:
        rows = component.proposal.rows
        item["proposal"] = {"domain": "indexed", "rows": rows} if rows else {"domain": "full"}
    return item


def _parse_object(value: object, index: int) -> Entry:
    where = f"objects[{index}]"
    found = schema.json_object(value, where)
    name = schema.label(found.get("id"), f"{where}: id")
    where = f"object {name!r}"
    match found.get("kind"):
        case "tensor":
            names = ("id", "kind", "shape", "format", "layout", "offset", "bytes")
            item = schema.members(value, names, where)
            return TensorEntry(
                name,
                schema.shape(item["shape"], where),
                _known(item["format"], FORMAT_SPELLINGS, f"{where}: format"),
                _known(item["layout"], LAYOUT_SPELLINGS, f"{where}: layout"),
                schema.integer(item["offset"], 0, f"{where}: offset"),
                schema.integer(item["bytes"], 1, f"{where}: bytes"),
            )
        case "resource":
            item = schema.members(value, ("id", "kind", "encoding", "offset", "bytes"), where)
            encoding = schema.text(item["encoding"], f"{where}: encoding")
            if encoding != RAW_BYTES_V3:
                raise DirectoryError(
                    f"{where}: unknown encoding {encoding!r}; known: {RAW_BYTES_V3}"
                )
            return ResourceEntry(
                name,
                RAW_BYTES,
                schema.integer(item["offset"], 0, f"{where}: offset"),
                schema.integer(item["bytes"], 1, f"{where}: bytes"),
            )
        case kind:
            shown = repr(kind) if isinstance(kind, str) else schema.kind(kind)
            raise DirectoryError(f"{where}: kind must be 'tensor' or 'resource', got {shown}")


def _known(value: object, spellings: Mapping[str, str], where: str) -> str:
    word = schema.text(value, where)
    if word not in spellings:
        raise DirectoryError(f"{where} {word!r} is unknown; known: {', '.join(spellings)}")
    return spellings[word]


def _parse_components(value: object, by_id: Mapping[str, Entry]) -> dict[str, Component]:
    found = schema.json_object(value, "components")
    if TEXT not in found:
        raise DirectoryError(f"components lacks the component {TEXT!r}")
    return {
        schema.label(name, "components: an id"): _parse_component(name, item, found, by_id)
        for name, item in found.items()
    }


def _parse_component(
    name: str, value: object, components: Mapping[str, Any], by_id: Mapping[str, Entry]
) -> Component:
    where = f"component {name!r}"
    optional = ("target", "resources", "proposal") if name == TEXT else ("target", "resources")
    item = schema.members(value, ("config",), where, optional=optional)
    target = None
    if "target" in item:
        target = schema.label(item["target"], f"{where}: target")
        if target not in components:
            raise DirectoryError(f"{where}: target {target!r} is not a component of this file")
    resources = schema.json_object(item.get("resources", {}), f"{where}: resources")
    for role, resource in resources.items():
        schema.label(role, f"{where}: a role")
        entry = by_id.get(schema.label(resource, f"{where}: resource {role!r}"))
        if not isinstance(entry, ResourceEntry):
            raise DirectoryError(f"{where}: resource {role!r} names {resource!r}, not a resource")
    return Component(
        schema.open_object(item["config"], f"{where}: config"),
        target,
        resources,
        _parse_proposal(item["proposal"], f"{where}: proposal") if "proposal" in item else None,
    )


def _parse_proposal(value: object, where: str) -> Proposal:
    item = schema.json_object(value, where)
    match item.get("domain"):
        case "full":
            schema.members(value, ("domain",), where)
            return Proposal(0)
        case "indexed":
            schema.members(value, ("domain", "rows"), where)
            return Proposal(schema.integer(item["rows"], 1, f"{where}: rows"))
    raise DirectoryError(f"{where}: domain must be 'full' or 'indexed'")


def _parse_files(value: object) -> tuple[FileSpan, ...]:
    if not isinstance(value, list) or not value:
        raise DirectoryError("directory: files must be a non-empty array")
    spans = []
    for index, item in enumerate(value):
        where = f"files[{index}]"
        found = schema.members(item, ("path", "payload_bytes"), where)
        path = _path(found["path"], index, where)
        least = 0 if index == 0 else 1
        size = schema.integer(found["payload_bytes"], least, f"{where}: payload_bytes")
        spans.append(FileSpan(path, size))
    seen: set[str | None] = set()
    for span in spans:
        if span.path in seen:
            raise DirectoryError(f"files names {span.path!r} twice")
        seen.add(span.path)
    return tuple(spans)


def _path(value: object, index: int, where: str) -> str | None:
    if index == 0:
        if value is not None:
            raise DirectoryError(f"{where}: path must be null, got {schema.kind(value)}")
        return None
    name = schema.label(value, f"{where}: path")
    if "/" in name or "\\" in name or name in (".", ".."):
        raise DirectoryError(f"{where}: path {name!r} must be a plain name of a file beside this")
    return name
