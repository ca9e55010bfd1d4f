"""One model in every framing and in several ways of sharing objects, for tests."""

import json
import struct
from dataclasses import replace
from pathlib import Path

from ninfer.artifact import Artifact, Component, ModelMap, Part, open_artifact, write_artifact
from ninfer.artifact.directory import ResourceEntry
from ninfer.artifact.migrate import migrate_to_v3
from ninfer.engine.contents import ModelContents, read_contents
from ninfer.models.qwen3_6.model_map import model_map_of
from ninfer.models.stored_rows import StoredRows

# Small enough that the objects of a micro model straddle many files.
PART_LIMIT = 1 << 18


def write_v1(source: Path, target: Path) -> None:
    """The v2 file `source` with a directory of v1; the payload may begin elsewhere."""
    data = source.read_bytes()
    (length,) = struct.unpack("<Q", data[8:16])
    root = json.loads(data[16 : 16 + length])
    old = {"model_id": root["identity"]["model_id"], "objects": root["objects"]}
    text = json.dumps(old, separators=(",", ":"), ensure_ascii=False).encode()
    head = b"NINFER\x00\x01" + struct.pack("<Q", len(text)) + text
    payload = data[-(-(16 + length) // 4096) * 4096 :]
    target.write_bytes(head + bytes(-len(head) % 4096) + payload)


def mapped(artifact: Artifact) -> ModelMap:
    """The v3 model map of a v2 artifact."""
    return model_map_of(artifact.directory, read_contents(artifact).config)


def write_v3(source: Path, target: Path, **options: int) -> None:
    """The v2 file `source` as v3."""
    with open_artifact(source) as artifact:
        migrate_to_v3(artifact, target, mapped(artifact), **options)


def resources_of(artifact: Artifact) -> list[tuple[str, bytes]]:
    """All resources under short ids that are no names of v2."""
    return [
        (f"file {index}", artifact.resource(entry.name))
        for index, entry in enumerate(artifact.directory.entries)
        if isinstance(entry, ResourceEntry)
    ]


def write_regrouped(source: Path, target: Path, groups: dict[str, list[str]]) -> None:
    """The v2 file `source` as v3, every parameter in an object of its own, or in a named group.

    Object ids say nothing: "object 17". `groups` maps any word to parameters that lie one above the
    other in one object, in that order.
    """
    with open_artifact(source) as artifact:
        contents = read_contents(artifact)
        grouped = {name for names in groups.values() for name in names}
        alone = [[name] for name in contents.table if name not in grouped]
        rows = StoredRows(artifact.tensor, contents.table, contents.table)
        objects, bindings = [], {}
        for index, names in enumerate([*groups.values(), *alone]):
            start = 0
            for name in names:
                height, width = _extent(contents, artifact, name)
                stop = start + height * width
                whole = len(names) == 1
                bindings[name] = (Part(f"object {index}", None if whole else (start, stop)),)
                start = stop
            objects.append((f"object {index}", rows.take(*names)))
        resources = resources_of(artifact)
        model_map = ModelMap(_components(artifact, resources), bindings, metadata={"name": "re"})
        write_artifact(target, model_map, [*resources, *objects])


def _extent(contents: ModelContents, artifact: Artifact, name: str) -> tuple[int, int]:
    (piece,) = contents.table[name]
    shape = artifact.entry(piece.object).shape
    return piece.stop - piece.start, shape[1] if len(shape) > 1 else 1


def _components(artifact: Artifact, resources: list[tuple[str, bytes]]) -> dict[str, Component]:
    """Components of the migrated file, roles as whole file names, resources by the new ids."""
    ids = {data: name for name, data in resources}
    found = {}
    for name, component in mapped(artifact).components.items():
        roles = {}
        for role, old in component.resources.items():
            roles[old.rpartition("/")[2] if name == "text" else role] = ids[artifact.resource(old)]
        found[name] = replace(component, resources=roles)
    return found
