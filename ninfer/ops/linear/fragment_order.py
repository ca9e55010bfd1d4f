"""Grouped weights in fragment order: the same bytes, re-tiled once for tensor-core registers.

The unit is a block of 16 rows and 64 columns. Bit by bit, a place in it is

    row    = 8 h + r                            r in 0..7
    column = 32 c + 8 j + 4 m0 + 2 e + p        c, m0, e, p in 0..1, j in 0..3

and lane 4 r + j of a warp owns it: in product m = 2 c + m0 of the four m16n8k16 products of the
block, half p of A register i = h + 2 e. So each lane finds its words side by side, and needs of an
activation row only the 8 neighbours 32 c + 8 j .. + 7, which one 16-byte load brings.

Code blocks, lane after lane (u = code + 2^(bits - 1)):

    Q4  512 bytes: word m holds nibble u at bits 4 (i + 4 p), rotated left by 3
    Q5  512 bytes: word m holds u of registers i < 3 at bits 5 i + 16 p and bit 0 of u of register
        3 at bit 31 - 16 p, rotated left by 2; then 128 bytes: one word a lane, the rest of u of
        register 3 at bits 4 m + 16 p, rotated left by 3
    Q6  512 bytes: word m holds the low nibble of u at bits 4 (i + 4 p), rotated left by 1; then
        256 bytes: word c a lane, bits 4 and 5 of u at bits 2 (4 m0 + i) + 16 p, rotated left by 5
    W8  two times 512 bytes (c = 0, 1): word (m0, e) holds the code itself at byte h + 2 p

A scale block holds eight pairs of binary16, rows r and r + 8: 32 bytes, for W8 one such run for
c = 0 and one for c = 1. In memory follow tile (16 rows) after tile; in a tile slice (`slice_groups`
groups of 64 columns, what one thread block reads) after slice; in a slice first all code blocks,
then all scale blocks. What lies beyond the matrix is code 0 under scale 0.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Self

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.errors import UnsupportedError
from ninfer.formats import GroupedMatrix, NumericFormat, numeric_format

TILE: Final = 16
WIDTH: Final = 64
_LANES: Final = 32
# Entries re-tiled at a time: temporaries are some sixteen bytes for each.
_BLOCK: Final = 1 << 26

FORMATS: Final = ("Q4G64_F16S", "Q5G64_F16S", "Q6G64_F16S", "W8G32_F16S")


@dataclass(frozen=True, slots=True)
class FragmentMatrix:
    """A grouped matrix [N, K] in fragment order.

    With `paired` rows, tile t holds rows 8t.. of the first half of the matrix as its rows 0..7 and
    of the second half as its rows 8..15: a gate and its up row meet in one lane.
    """

    format: str
    shape: tuple[int, int]
    slice_groups: int
    paired: bool
    words: Tensor  # [tiles, slices, slice bytes] uint8, contiguous

    @property
    def entry(self) -> NumericFormat:
        """The table entry of this matrix's format."""
        return numeric_format(self.format)

    @property
    def device(self) -> torch.device:
        """Where the words lie."""
        return self.words.device

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales, padding included."""
        return self.words.nbytes

    @property
    def tiles(self) -> int:
        """Row tiles."""
        return self.words.shape[0]

    @property
    def slices(self) -> int:
        """Column slices."""
        return self.words.shape[1]

    def rows(self, start: int, stop: int) -> Self:
        """Rows start:stop in fragment order: a view from tile to tile, else a copy."""
        rows, columns = self.shape
        assert 0 <= start <= stop <= rows, (start, stop, rows)
        if (start, stop) == (0, rows):
            return self
        if not self.paired and start % TILE == 0 and (stop % TILE == 0 or stop == rows):
            words = self.words[start // TILE : -(-stop // TILE)]
            return replace(self, shape=(stop - start, columns), words=words)
        first, last = (0, rows) if self.paired else _whole_tiles(start, stop, rows)
        stored = from_fragments(self.rows(first, last)).rows(start - first, stop - first)
        cut = to_fragments(stored, self.slice_groups)
        return replace(self, shape=cut.shape, paired=False, words=cut.words)

    def dequantise(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Values [N, K]; see GroupedMatrix.dequantise."""
        return from_fragments(self).dequantise(dtype)


def _whole_tiles(start: int, stop: int, rows: int) -> tuple[int, int]:
    """The rows of all tiles that rows start:stop touch."""
    return start // TILE * TILE, min(-(-stop // TILE) * TILE, rows)


def code_bytes(bits: int) -> int:
    """Bytes of a code block."""
    return TILE * WIDTH * bits // 8


def scale_bytes(bits: int) -> int:
    """Bytes of the scales of a code block."""
    return TILE * 2 * (2 if bits == 8 else 1)


def groups_of(columns: int) -> int:
    """Groups of 64 columns that hold a row."""
    return -(-columns // WIDTH)


def to_fragments(
    matrix: GroupedMatrix, slice_groups: int, *, paired: bool = False
) -> FragmentMatrix:
    """Re-tile a matrix on its device; the planes are copied, not changed.

    Raises UnsupportedError for a format without a fragment order and for an odd number of paired
    rows.
    """
    rows, columns = matrix.shape
    if matrix.format not in FORMATS:
        raise UnsupportedError(f"fragment order: {matrix.format} is not {', '.join(FORMATS)}")
    if paired and rows % 2:
        raise UnsupportedError(f"fragment order: {rows} paired rows; their number must be even")
    bits = matrix.entry.bits
    groups = groups_of(columns)
    slices = -(-groups // slice_groups)
    tiles = _tile_count(rows, paired)
    runs = WIDTH // matrix.entry.group  # groups of the format in 64 columns
    planes = [matrix.base, matrix.scales.unsqueeze(-1).view(torch.uint8)]
    if matrix.high is not None:
        planes.append(matrix.high)
    tiled = [
        _tiled(plane.reshape(rows, -1, runs * plane.shape[2])[:, :groups], tiles, paired)
        for plane in planes
    ]
    split = slice_groups * code_bytes(bits)
    size = split + slice_groups * scale_bytes(bits)
    words = torch.zeros(tiles, slices, size, dtype=torch.uint8, device=matrix.device)
    step = max(_BLOCK // (TILE * WIDTH * groups), 1)
    for start in range(0, tiles, step):
        base, scales, *high = (plane[start : start + step] for plane in tiled)
        codes = _ENCODERS[bits](base, high[0] if high else base)  # [tiles, groups, code bytes]
        part = words[start : start + step]
        part[..., :split] = _sliced(codes, slices, slice_groups)
        part[..., split:] = _sliced(_scales(scales, runs), slices, slice_groups)
    return FragmentMatrix(matrix.format, matrix.shape, slice_groups, paired, words)


def from_fragments(matrix: FragmentMatrix) -> GroupedMatrix:
    """The packed planes again, bit for bit; inverse of to_fragments."""
    rows, columns = matrix.shape
    entry = matrix.entry
    groups, runs = groups_of(columns), WIDTH // entry.group
    split = matrix.slice_groups * code_bytes(entry.bits)
    tiles = matrix.tiles
    codes = matrix.words[..., :split].reshape(tiles, -1, code_bytes(entry.bits))[:, :groups]
    scales = matrix.words[..., split:].reshape(tiles, -1, scale_bytes(entry.bits))[:, :groups]
    base, high = _DECODERS[entry.bits](codes)
    # [tiles, groups, runs, r, h] pairs of bytes
    flat = scales.reshape(tiles, groups, runs, 8, 2, 2).permute(0, 4, 3, 1, 2, 5)
    stored = entry.groups_per_row(columns)

    def plane(tiled: Tensor) -> Tensor:
        found = _untiled(tiled.reshape(tiles, 2, 8, groups, -1), rows, matrix.paired)
        found = functional.pad(found, (0, 0, 0, stored // runs - groups))
        return found.reshape(rows, stored, -1).contiguous()

    return GroupedMatrix(
        format=matrix.format,
        shape=matrix.shape,
        base=plane(base),
        high=None if high is None else plane(high),
        scales=plane(flat).view(torch.float16).squeeze(-1),
    )


def _tile_count(rows: int, paired: bool) -> int:
    return -(-(rows // 2) // 8) if paired else -(-rows // TILE)


def _tiled(plane: Tensor, tiles: int, paired: bool) -> Tensor:
    """[N, groups, bytes] as [tiles, h, r, groups, bytes]; a view when no row is missing."""
    halves = 2 if paired else 1
    parts: Tensor = plane.unflatten(0, (halves, -1))
    missing = tiles * TILE // halves - parts.shape[1]
    if missing:
        parts = functional.pad(parts, (0, 0, 0, 0, 0, missing))
    shape = (tiles, 8) if paired else (tiles, 2, 8)
    tiled: Tensor = parts.unflatten(1, shape)
    return tiled.transpose(0, 1) if paired else tiled[0]


def _untiled(tiled: Tensor, rows: int, paired: bool) -> Tensor:
    """[tiles, h, r, groups, bytes] as [N, groups, bytes]."""
    if paired:
        return tiled.transpose(0, 1).flatten(1, 2)[:, : rows // 2].flatten(0, 1)
    return tiled.flatten(0, 2)[:rows]


def _sliced(blocks: Tensor, slices: int, slice_groups: int) -> Tensor:
    """[tiles, groups, bytes] as [tiles, slices, bytes of a slice], filled up with zero blocks.

    Codes of a filled block mean less than nothing, but its scale is 0.
    """
    missing = slices * slice_groups - blocks.shape[1]
    if missing:
        blocks = functional.pad(blocks, (0, 0, 0, missing))
    return blocks.reshape(blocks.shape[0], slices, -1)


def _int32(word: int) -> int:
    """The int32 with these 32 bits."""
    return word - (1 << 32) if word >> 31 else word


def _rotated(words: Tensor, count: int) -> Tensor:
    """int32 words rotated left by 1..31 bits."""
    return (words << count) | ((words >> (32 - count)) & ((1 << count) - 1))


def _scales(scales: Tensor, runs: int) -> Tensor:
    """Scale bytes [tiles, h, r, groups, 2 runs] as blocks [tiles, groups, 32 runs]."""
    tiles, _, _, groups, _ = scales.shape
    pairs = scales.reshape(tiles, 2, 8, groups, runs, 2)
    return pairs.permute(0, 3, 4, 2, 1, 5).reshape(tiles, groups, TILE * 2 * runs)


# A spread word is what one stored byte contributes at h = e = 0 (and c = m0 = 0): the bits of its
# even columns in the low half, of its odd columns at the same place in the high half.


def _nibbles(base: Tensor, shift: int, flip: int) -> Tensor:
    """Low nibbles [tiles, h, r, groups, (c j m0 e)] as words [tiles, groups, lane, m]."""
    tiles, _, _, groups, _ = base.shape
    wide = base.reshape(tiles, 2, 8, groups, 2, 4, 2, 2).to(torch.int32)
    wide = (wide & 0x0F) | ((wide & 0xF0) << 12)
    word = wide[:, 0, ..., 0] | (wide[:, 1, ..., 0] << 4)
    word |= (wide[:, 0, ..., 1] << 8) | (wide[:, 1, ..., 1] << 12)  # [tiles, r, groups, c, j, m0]
    word = _rotated(word ^ _int32(flip), shift)
    return word.permute(0, 2, 1, 4, 3, 5).reshape(tiles, groups, _LANES, 4)


def _nibble_bytes(words: Tensor, shift: int, flip: int) -> Tensor:
    """Inverse of _nibbles: base bytes [tiles, h, r, groups, 32]."""
    tiles, groups = words.shape[:2]
    plain = _rotated(words, 32 - shift) ^ _int32(flip)
    wide = torch.stack([plain >> (4 * (h + 2 * e)) for h in (0, 1) for e in (0, 1)], -1)
    low = ((wide & 0x0F) | ((wide >> 12) & 0xF0)).to(torch.uint8)
    low = low.view(tiles, groups, 8, 4, 2, 2, 2, 2)  # [tiles, groups, r, j, c, m0, h, e]
    return low.permute(0, 6, 2, 1, 4, 3, 5, 7).reshape(tiles, 2, 8, groups, 32)


def _joined(*planes: Tensor) -> Tensor:
    """int32 words [tiles, groups, lane, count] of several planes as bytes of whole blocks."""
    flat = [plane.contiguous().view(torch.uint8).flatten(2) for plane in planes]
    return flat[0] if len(flat) == 1 else torch.cat(flat, -1)


def _words(codes: Tensor, start: int, count: int) -> Tensor:
    """`count` words a lane from byte `start` of each block: int32 [tiles, groups, lane, count]."""
    part = codes[..., start : start + _LANES * 4 * count].contiguous()
    words: Tensor = part.view(torch.int32).unflatten(-1, (_LANES, count))
    return words


def _encode4(base: Tensor, _: Tensor) -> Tensor:
    return _joined(_nibbles(base, 3, 0x88888888))


def _decode4(codes: Tensor) -> tuple[Tensor, None]:
    return _nibble_bytes(_words(codes, 0, 4), 3, 0x88888888), None


def _encode5(base: Tensor, high: Tensor) -> Tensor:
    tiles, _, _, groups, _ = base.shape
    code = base.reshape(tiles, 2, 8, groups, 2, 4, 2, 2).to(torch.int32)
    code = (code & 0x0F) | ((code & 0xF0) << 12)  # [tiles, h, r, groups, c, j, m0, e]
    top = ~high.reshape(tiles, 2, 8, groups, 2, 4).to(torch.int32)  # a byte is c j, its bits m0 e p
    top = torch.stack([top >> count for count in (0, 2, 4, 6)], -1).unflatten(-1, (2, 2))
    code |= ((top & 1) << 4) | ((top & 2) << 19)
    first, second, third, fourth = (code[:, i & 1, ..., i >> 1] for i in range(4))
    word = first | (second << 5) | (third << 10) | _rotated(fourth & 0x00010001, 31)
    word = _rotated(word, 2).permute(0, 2, 1, 4, 3, 5).reshape(tiles, groups, _LANES, 4)
    rest = ((fourth >> 1) & 0x000F000F).permute(0, 2, 1, 4, 3, 5).reshape(word.shape)
    last = rest[..., 0] | (rest[..., 1] << 4) | (rest[..., 2] << 8) | (rest[..., 3] << 12)
    return _joined(word, _rotated(last, 3).unsqueeze(-1))


def _decode5(codes: Tensor) -> tuple[Tensor, Tensor]:
    tiles, groups, _ = codes.shape
    word = _rotated(_words(codes, 0, 4), 30)
    last = _rotated(_words(codes, 512, 1), 29)
    rest = torch.cat([last >> count for count in (0, 4, 8, 12)], -1) & 0x000F000F
    fourth = (rest << 1) | (_rotated(word, 1) & 0x00010001)
    code = torch.stack([word, word >> 5, word >> 10, fourth], -1) & 0x001F001F
    code = code.view(tiles, groups, 8, 4, 2, 2, 2, 2)  # [tiles, groups, r, j, c, m0, e, h]
    code = code.permute(0, 7, 2, 1, 4, 3, 5, 6)
    low = ((code & 0x0F) | ((code >> 12) & 0xF0)).to(torch.uint8)
    bits = ~(((code >> 4) & 1) | ((code >> 19) & 2)) & 3
    high = sum(bits[..., i >> 1, i & 1] << (2 * i) for i in range(4))
    assert isinstance(high, Tensor)
    return low.reshape(tiles, 2, 8, groups, 32), high.to(torch.uint8).flatten(4)


def _encode6(base: Tensor, high: Tensor) -> Tensor:
    tiles, _, _, groups, _ = high.shape
    wide = high.reshape(tiles, 2, 8, groups, 2, 4, 2).to(torch.int32)  # c j m0, its fields e p
    wide = (wide & 0x33) | ((wide & 0xCC) << 14)
    word = wide[:, 0, ..., 0] | (wide[:, 1, ..., 0] << 2)
    word |= (wide[:, 0, ..., 1] << 8) | (wide[:, 1, ..., 1] << 10)  # [tiles, r, groups, c, j]
    top = _rotated(word ^ _int32(0xAAAAAAAA), 5).permute(0, 2, 1, 4, 3)
    return _joined(_nibbles(base, 1, 0), top.reshape(tiles, groups, _LANES, 2))


def _decode6(codes: Tensor) -> tuple[Tensor, Tensor]:
    tiles, groups, _ = codes.shape
    word = _rotated(_words(codes, 512, 2), 27) ^ _int32(0xAAAAAAAA)  # [tiles, groups, lane, c]
    wide = torch.stack([word >> (2 * h + 8 * m) for h in (0, 1) for m in (0, 1)], -1)
    high = ((wide & 0x33) | ((wide >> 14) & 0xCC)).to(torch.uint8)
    high = high.view(tiles, groups, 8, 4, 2, 2, 2).permute(0, 5, 2, 1, 4, 3, 6)
    return _nibble_bytes(_words(codes, 0, 4), 1, 0), high.reshape(tiles, 2, 8, groups, 16)


def _encode8(base: Tensor, _: Tensor) -> Tensor:
    tiles, groups = base.shape[0], base.shape[3]
    places = base.reshape(tiles, 2, 8, groups, 2, 4, 2, 2, 2)  # [t, h, r, g, c, j, m0, e, p]
    return places.permute(0, 3, 4, 2, 5, 6, 7, 8, 1).reshape(tiles, groups, code_bytes(8))


def _decode8(codes: Tensor) -> tuple[Tensor, None]:
    tiles, groups, _ = codes.shape
    places = codes.reshape(tiles, groups, 2, 8, 4, 2, 2, 2, 2)
    return places.permute(0, 8, 3, 1, 2, 4, 5, 6, 7).reshape(tiles, 2, 8, groups, 64), None


_ENCODERS: Final[dict[int, Callable[[Tensor, Tensor], Tensor]]] = {
    4: _encode4,
    5: _encode5,
    6: _encode6,
    8: _encode8,
}
_DECODERS: Final[dict[int, Callable[[Tensor], tuple[Tensor, Tensor | None]]]] = {
    4: _decode4,
    5: _decode5,
    6: _decode6,
    8: _decode8,
}
