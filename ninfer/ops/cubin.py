"""What a compiled kernel takes of a multiprocessor, read from its machine code (an ELF file).

The compiler states registers, frames and block sizes in sections named .nv.info, as records of
four bytes (format, attribute, size or value) and what they announce.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ninfer.errors import KitError
from ninfer.ops.linear.fast_plan import shared_limit

# Of any architecture from sm_80 to sm_121: registers of a thread and of a multiprocessor, in units
# of 256 for each warp, and bytes of a block's shared memory that need no permission.
MOST_REGISTERS: Final = 255
_REGISTER_FILE: Final = 65536
_REGISTER_UNIT: Final = 8
_WARP: Final = 32
_MOST_THREADS: Final = 1024
_SIZED: Final = 0x04
_FRAME_SIZE, _REGISTERS, _MAX_THREADS, _REQUIRED_THREADS = 0x11, 0x2F, 0x05, 0x10
_SYMBOL_TABLE: Final = 2


@dataclass(frozen=True, slots=True)
class Resources:
    """One kernel: registers of a thread, threads of a block (0 if unsaid), bytes of both kinds."""

    kernel: str
    registers: int
    threads: int
    frame_bytes: int  # of a thread's local memory: spilled registers and indexed arrays
    shared_bytes: int  # known when it was compiled; a launch may ask for more

    def excess(self, architecture: int) -> str | None:
        """What of it a card of that architecture does not have, in words."""
        limit = shared_limit(architecture)
        units = -(-self.registers // _REGISTER_UNIT) * _REGISTER_UNIT
        block = units * -(-self.threads // _WARP) * _WARP
        if self.registers > MOST_REGISTERS:
            return f"{self.kernel}: {self.registers} registers of {MOST_REGISTERS} a thread"
        if self.threads > _MOST_THREADS:
            return f"{self.kernel}: {self.threads} threads of {_MOST_THREADS} a block"
        if block > _REGISTER_FILE:
            return f"{self.kernel}: {block} registers of {_REGISTER_FILE} a block"
        if self.shared_bytes > limit:
            return f"{self.kernel}: {self.shared_bytes} bytes of shared memory of {limit}"
        return None


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    content: bytes
    size: int


def resources(code: bytes, where: str) -> list[Resources]:
    """Every kernel of a cubin, by name. Raises KitError, naming `where`, for anything else."""
    try:
        sections = list(_sections(code))
        return sorted(_read(sections), key=lambda found: found.kernel)
    except (struct.error, IndexError, UnicodeDecodeError, ValueError, StopIteration) as error:
        raise KitError(f"{where}: no machine code for a card ({error})") from error


def _sections(code: bytes) -> Iterator[_Section]:
    if code[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit ELF file")
    (start,) = struct.unpack_from("<Q", code, 0x28)
    each, count, names = struct.unpack_from("<HHH", code, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", code, start + each * n) for n in range(count)]
    table = code[headers[names][4] :]
    for name, kind, _, _, offset, size in headers:
        text = table[name : table.index(b"\0", name)].decode()
        yield _Section(text, kind, code[offset : offset + size], size)


def _read(sections: list[_Section]) -> Iterator[Resources]:
    by_name = {section.name: section for section in sections}
    symbols = _symbols(sections, by_name[".strtab"].content if ".strtab" in by_name else b"")
    registers: dict[str, int] = {}
    frames: dict[str, int] = {}
    for attribute, value in _records(by_name.get(".nv.info")):
        if attribute in (_REGISTERS, _FRAME_SIZE):
            symbol, amount = struct.unpack("<II", value)
            (registers if attribute == _REGISTERS else frames)[symbols[symbol]] = amount
    for name in by_name:
        kernel = name.removeprefix(".text.")
        if kernel == name or kernel not in registers:
            continue
        shared = by_name.get(f".nv.shared.{kernel}")
        threads = 0
        for attribute, value in _records(by_name.get(f".nv.info.{kernel}")):
            if attribute in (_MAX_THREADS, _REQUIRED_THREADS):
                x, y, z = struct.unpack("<III", value)
                threads = max(threads, x * y * z)
        yield Resources(
            kernel, registers[kernel], threads, frames.get(kernel, 0), shared.size if shared else 0
        )


def _symbols(sections: list[_Section], names: bytes) -> list[str]:
    (table,) = (s.content for s in sections if s.kind == _SYMBOL_TABLE)
    starts = [struct.unpack_from("<I", table, at)[0] for at in range(0, len(table), 24)]
    return [names[start : names.index(b"\0", start)].decode() for start in starts]


def _records(section: _Section | None) -> Iterator[tuple[int, bytes]]:
    """Records that announce a size; the others hold their value in the head."""
    content = section.content if section else b""
    at = 0
    while at + 4 <= len(content):
        form, attribute, size = struct.unpack_from("<BBH", content, at)
        at += 4
        if form == _SIZED:
            yield attribute, content[at : at + size]
            at += size
