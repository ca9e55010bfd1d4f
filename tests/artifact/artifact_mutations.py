"""Seeded mutations of an artifact's header and directory, for tests on every floor.

`mutations(data, count, seed)` yields (label, mutated file) for a file of v2 or v3. The container
has no checksum, so some mutations are legal directories of other content, such as a changed letter
in a name. The container must read those consistently; the strict inventory of a v2 model must
refuse them.
"""

import copy
import json
import random
import struct
from collections.abc import Iterator

_NUMBERS = (-1, 0, 1, 2, 255, 256, 257, 4096, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64,
            10**30, 1.0, 0.5, 1e400, True, False, None, "", "1", [], {}, [[]])  # fmt: skip
_CHUNKS = (b"", b"\x00", b"\xff", b"\xc3", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"-",
           b"0", b"9" * 50, b"null", b"NaN", b"1e999", b"\\ud800", b" ", b"\n",
           b"[" * 5000)  # fmt: skip


def mutations(data: bytes, count: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Mutants of the whole file `data`; kinds take turns, so all occur in any count above 8."""
    draw = random.Random(seed)
    kinds = (_flip, _truncate, _length, _member, _number, _splice, _objects, _blanks)
    for index in range(count):
        kind = kinds[index % len(kinds)]
        yield f"{index} {kind.__name__[1:]}", kind(data, draw)


def _parts(data: bytes) -> tuple[bytes, bytes]:
    """Directory text and payload."""
    (length,) = struct.unpack("<Q", data[8:16])
    first = _header(data)
    start = -(-(first + length) // 4096) * 4096
    return data[first : first + length], data[start:]


def _header(data: bytes) -> int:
    """Bytes in front of the directory; v3 has an id there."""
    return 32 if data[7] == 3 else 16


def _framed(data: bytes, text: bytes) -> bytes:
    head = data[:8] + struct.pack("<Q", len(text)) + data[16 : _header(data)] + text
    return head + bytes(-len(head) % 4096) + _parts(data)[1]


def _edited(data: bytes, root: object) -> bytes:
    return _framed(data, json.dumps(root, separators=(",", ":")).encode())


def _flip(data: bytes, draw: random.Random) -> bytes:
    """One to four bits or bytes of header and directory."""
    out = bytearray(data)
    end = _header(data) + len(_parts(data)[0])
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(end)
        out[at] = draw.choice((out[at] ^ 1 << draw.randrange(8), draw.randrange(256)))
    return bytes(out)


def _truncate(data: bytes, draw: random.Random) -> bytes:
    """The file cut anywhere."""
    return data[: draw.randrange(len(data))]


def _length(data: bytes, draw: random.Random) -> bytes:
    """Another directory length in the header."""
    (length,) = struct.unpack("<Q", data[8:16])
    other = draw.choice((0, length - 1, length + 1, 2 * length, 2**26, 2**63, 2**64 - 1,
                         draw.randrange(len(data)), draw.getrandbits(64)))  # fmt: skip
    return data[:8] + struct.pack("<Q", other) + data[16:]


def _objects_of(node: object) -> list[dict]:
    found = [node] if isinstance(node, dict) and node else []
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        found += _objects_of(child)
    return found


def _member(data: bytes, draw: random.Random) -> bytes:
    """A member dropped, renamed, added, retyped, or swapped with one of another object."""
    root = json.loads(_parts(data)[0])
    objects = _objects_of(root)
    target = draw.choice(objects)
    key = draw.choice(list(target))
    match draw.randrange(5):
        case 0:
            del target[key]
        case 1:
            target[key + "x"] = target.pop(key)
        case 2:
            target["extra"] = draw.choice(_NUMBERS)
        case 3:
            target[key] = draw.choice(_NUMBERS)
        case _:
            other = draw.choice(objects)
            if key in other:
                target[key], other[key] = other[key], target[key]
            else:
                other[key] = copy.deepcopy(target[key])
    return _edited(data, root)


def _number(data: bytes, draw: random.Random) -> bytes:
    """An offset, a size or a dimension changed."""
    root = json.loads(_parts(data)[0])
    entry = draw.choice(root["objects"])
    key = draw.choice(("offset", "bytes", "shape"))
    holder, at = entry, key
    if key == "shape":
        holder = entry.get("shape") or [0]
        at = draw.randrange(len(holder))
    old = holder[at]
    step = draw.choice((-256, -1, 1, 2, 64, 128, 256, 1 << 20))
    holder[at] = draw.choice((draw.choice(_NUMBERS), old + step, old * 2, -old))
    return _edited(data, root)


def _splice(data: bytes, draw: random.Random) -> bytes:
    """A span of the text removed, repeated, or replaced by a hostile chunk."""
    text = _parts(data)[0]
    start = draw.randrange(len(text))
    stop = min(start + draw.choice((0, 1, 2, 8, 64)), len(text))
    middle = draw.choice((*_CHUNKS, text[start:stop] * 2))
    return _framed(data, text[:start] + middle + text[stop:] or b" ")


def _objects(data: bytes, draw: random.Random) -> bytes:
    """Objects swapped, doubled, dropped, or given to another model."""
    root = json.loads(_parts(data)[0])
    entries = root["objects"]
    at = draw.randrange(len(entries))
    match draw.randrange(4):
        case 0:
            other = draw.randrange(len(entries))
            entries[at], entries[other] = entries[other], entries[at]
        case 1:
            entries.insert(draw.randrange(len(entries)), dict(entries[at]))
        case 2:
            del entries[at]
        case _:
            notes = root.get("identity") or root["metadata"]
            notes[draw.choice(list(notes))] += draw.choice(("x", "é"))
    return _edited(data, root)


def _blanks(data: bytes, draw: random.Random) -> bytes:
    """The same directory in other words: blanks, escapes, another member order."""
    root = json.loads(_parts(data)[0])

    def shuffled(node: object) -> object:
        if isinstance(node, list):
            return [shuffled(child) for child in node]
        if not isinstance(node, dict):
            return node
        return {key: shuffled(node[key]) for key in draw.sample(list(node), len(node))}

    text = json.dumps(shuffled(root), indent=draw.choice((None, 0, 3)))
    letter = draw.choice("aeiot")
    escaped = text.replace(letter, f"\\u{ord(letter):04x}")
    return _framed(data, escaped.encode())
