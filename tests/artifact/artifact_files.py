"""Small artifact files for tests, built byte by byte from the container's rules."""

import json
import struct

# Members in the order that writers use; a BF16 [2, 2] tensor and a three-byte resource.
SMALL = {
    "identity": {"model_id": "m", "weights_id": "w"},
    "objects": [
        {
            "name": "frontend/a.txt",
            "kind": "resource",
            "encoding": "raw-bytes-v1",
            "offset": 0,
            "bytes": 3,
        },
        {
            "name": "text/w",
            "kind": "tensor",
            "shape": [2, 2],
            "format": "BF16",
            "layout": "contiguous-le-v1",
            "offset": 256,
            "bytes": 8,
        },
    ],
}
PAYLOAD = b"abc".ljust(256, b"\x00") + bytes.fromhex("803f00c0003f4040")


def compact(root: object) -> bytes:
    """JSON without blanks."""
    return json.dumps(root, separators=(",", ":")).encode()


def frame(text: bytes, payload: bytes = PAYLOAD, magic: bytes = b"NINFER\x00\x02") -> bytes:
    """A whole file around a directory text."""
    head = magic + struct.pack("<Q", len(text)) + text
    return head + bytes(-len(head) % 4096) + payload


def small_root(**entry: object) -> dict:
    """SMALL, with members of its tensor replaced; the value `...` drops the member."""
    root = json.loads(json.dumps(SMALL))
    tensor = root["objects"][1] | entry
    root["objects"][1] = {key: value for key, value in tensor.items() if value is not ...}
    return root


def artifact_27b_directory() -> bytes:
    """A directory of 1124 objects with the sizes of a 27B artifact, about 17.5e9 payload bytes."""
    objects, cursor = [], 0

    def add(name: str, shape: list[int], format: str, layout: str, size: int) -> None:
        nonlocal cursor
        offset = -(-cursor // 256) * 256
        objects.append(
            {
                "name": name,
                "kind": "tensor",
                "shape": shape,
                "format": format,
                "layout": layout,
                "offset": offset,
                "bytes": size,
            }
        )
        cursor = offset + size

    # Q4 of 5120 columns: 40 pairs of groups, 34 bytes a group, a row.
    for i in range(1124):
        rows = 5440 if i % 2 else 6016
        name = f"text/layers/{i // 17}/projection_{i % 17}"
        add(name, [rows, 5120], "Q4G64_F16S", "row-split-k128-v1", rows * 80 * 34)
    return compact({"identity": {"model_id": "big", "weights_id": "int"}, "objects": objects})
