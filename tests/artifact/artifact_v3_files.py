"""Small v3 artifacts for tests, built byte by byte from the container's rules."""

import json
import struct
from pathlib import Path

import artifact_files as files

ID = bytes(range(16))
# The published vector of the framing, members in the order that writers use.
SMALL = {
    "components": {
        "text": {
            "config": {"architectures": ["Qwen3_5ForCausalLM"]},
            "resources": {"tokenizer": "a"},
        }
    },
    "objects": [
        {"id": "a", "kind": "resource", "encoding": "raw_bytes_v1", "offset": 0, "bytes": 3},
        {
            "id": "b",
            "kind": "tensor",
            "shape": [2, 2],
            "format": "bf16",
            "layout": "contiguous_le_v1",
            "offset": 256,
            "bytes": 8,
        },
    ],
    "bindings": {"text/token_embedding": {"object": "b"}},
    "uses": [],
    "files": [{"path": None, "payload_bytes": 264}],
}


def frame(text: bytes, payload: bytes = files.PAYLOAD, artifact_id: bytes = ID) -> bytes:
    """An entry file around a directory text."""
    head = b"NINFER\x00\x03" + struct.pack("<Q", len(text)) + artifact_id + text
    return head + bytes(-len(head) % 4096) + payload


def part(index: int, payload: bytes, artifact_id: bytes = ID) -> bytes:
    """A part file."""
    return (b"NINPRT\x00\x03" + struct.pack("<Q", index) + artifact_id).ljust(4096, b"\0") + payload


def root(**members: object) -> dict:
    """SMALL with members replaced; the value `...` drops one."""
    whole = json.loads(json.dumps(SMALL)) | members
    return {key: value for key, value in whole.items() if value is not ...}


def tensor(**members: object) -> dict:
    """SMALL with members of its tensor replaced; the value `...` drops one."""
    whole = root()
    entry = whole["objects"][1] | members
    whole["objects"][1] = {key: value for key, value in entry.items() if value is not ...}
    return whole


def write_cut(path: Path, source: Path, sizes: list[int]) -> list[Path]:
    """The one-file v3 artifact `source` again, its payload cut into files of these sizes.

    The last file takes the rest. Returns all paths, the entry file first.
    """
    data = source.read_bytes()
    (length,) = struct.unpack("<Q", data[8:16])
    start = -(-(32 + length) // 4096) * 4096
    directory, payload = json.loads(data[32 : 32 + length]), data[start:]
    pieces, rest = [], payload
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    pieces.append(rest)
    names = [None, *(f"part number {i}" for i in range(1, len(pieces)))]
    directory["files"] = [
        {"path": name, "payload_bytes": len(piece)}
        for name, piece in zip(names, pieces, strict=True)
    ]
    path.write_bytes(frame(files.compact(directory), pieces[0], data[16:32]))
    paths = [path]
    for index, piece in enumerate(pieces[1:], 1):
        paths.append(path.with_name(names[index]))
        paths[-1].write_bytes(part(index, piece, data[16:32]))
    return paths
