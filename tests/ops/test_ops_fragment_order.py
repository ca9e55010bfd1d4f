"""Fragment order: exact inversion, size, and what the kernels' bit operations make of its words."""

import pytest
import torch

from ninfer.errors import UnsupportedError
from ninfer.formats import GroupedMatrix, numeric_format, quantise
from ninfer.formats.planes import unpack_codes
from ninfer.ops.linear import fragment_order
from ninfer.ops.linear.fragment_order import FORMATS, from_fragments, groups_of, to_fragments

SHAPES = [(48, 320, 5, False), (50, 330, 4, True), (16, 64, 1, False), (37, 90, 3, False)]


def random_matrix(form: str, rows: int, columns: int) -> GroupedMatrix:
    """Random words in every lane that a row of this width has, zeros beyond as stored."""
    entry = numeric_format(form)
    stored, used = entry.groups_per_row(columns), groups_of(columns) * (64 // entry.group)

    def plane(count: int) -> torch.Tensor:
        found = torch.randint(0, 256, (rows, stored, count), dtype=torch.uint8)
        found[:, used:] = 0
        return found

    scales = torch.rand(rows, stored).half()
    scales[:, used:] = 0
    high = plane(entry.high_bytes) if entry.high_bits else None
    return GroupedMatrix(form, (rows, columns), plane(entry.base_bytes), high, scales)


@pytest.mark.parametrize(("rows", "columns", "slice_groups", "paired"), SHAPES)
@pytest.mark.parametrize("form", FORMATS)
def test_planes_come_back_bit_for_bit(form, rows, columns, slice_groups, paired, monkeypatch):
    matrix = random_matrix(form, rows, columns)
    tiled = to_fragments(matrix, slice_groups, paired=paired)
    back = from_fragments(tiled)
    assert torch.equal(back.base, matrix.base)
    assert torch.equal(back.scales, matrix.scales)
    assert (back.high is None) == (matrix.high is None)
    if matrix.high is not None:
        assert torch.equal(back.high, matrix.high)
    monkeypatch.setattr(fragment_order, "_BLOCK", 1)
    assert torch.equal(to_fragments(matrix, slice_groups, paired=paired).words, tiled.words)


@pytest.mark.parametrize("form", FORMATS)
def test_whole_tiles_take_no_more_bytes_than_the_planes(form):
    matrix = random_matrix(form, 64, 512)
    assert to_fragments(matrix, 4).nbytes == matrix.nbytes
    assert to_fragments(matrix, 8, paired=True).nbytes == matrix.nbytes


def test_what_has_no_fragment_order_is_refused():
    with pytest.raises(UnsupportedError, match="NVFP4 is not Q4G64_F16S"):
        to_fragments(quantise(torch.randn(128, 64), "NVFP4"), 1)
    with pytest.raises(UnsupportedError, match="7 paired rows"):
        to_fragments(quantise(torch.randn(7, 64), FORMATS[0]), 1, paired=True)


def rotr(words: torch.Tensor, count: int) -> torch.Tensor:
    """32-bit words in int64, rotated right."""
    return ((words >> count) | (words << (32 - count))) & 0xFFFFFFFF


def bf16(halves: torch.Tensor) -> torch.Tensor:
    return (halves << 16).to(torch.int32).view(torch.float32)


def operand_pairs(bits: int, words: torch.Tensor, m: int, i: int) -> torch.Tensor:
    """A register i of product m by the LOP3s of codec.cuh: int64 [..., lane], less the offset."""
    if bits == 8:
        pair = words[..., :, 4 * (m // 2) : 4 * (m // 2) + 4][..., 2 * (m % 2) + i // 2]
        pair = pair >> (8 * (i % 2))
        return (pair & 0x007F007F) | 0x43004300, (pair & 0x00800080) | 0x43004300
    shift = 7 - bits
    exponent = ((127 + bits) << 7) * 0x00010001
    if bits == 5 and i < 3:
        pair = (rotr(words[..., m], 5 * i) & 0x007C007C) | exponent
    elif bits == 5:
        pair = (rotr(words[..., 4], 4 * m) & 0x00780078) | exponent
        pair |= (words[..., m] << 1) & 0x00040004
    else:
        pair = (rotr(words[..., m], 4 * i) & (0x000F000F << shift)) | exponent
    if bits == 6:
        pair |= rotr(words[..., 4 + m // 2], 2 * (4 * (m % 2) + i)) & 0x00600060
    return pair, torch.full_like(pair, exponent | 0x00400040)


def device_codes(tiled: fragment_order.FragmentMatrix) -> torch.Tensor:
    """[tiles * 16, groups * 64] numbers that the A registers stand for, placed as mma does."""
    bits, tiles = tiled.entry.bits, tiled.tiles
    split = tiled.slice_groups * fragment_order.code_bytes(bits)
    blocks = tiled.words[..., :split].reshape(tiles, -1, fragment_order.code_bytes(bits))
    low = blocks[..., : 512 * (2 if bits == 8 else 1)].contiguous().view(torch.int32)
    low = low.view(tiles, blocks.shape[1], -1, 32, 4).transpose(2, 3).flatten(3)
    planes = [low]
    if bits in (5, 6):
        planes.append(blocks[..., 512:].contiguous().view(torch.int32).unflatten(-1, (32, -1)))
    words = torch.cat(planes, -1).to(torch.int64) & 0xFFFFFFFF  # [tiles, groups, lane, words]
    out = torch.full((tiles, blocks.shape[1], 16, 64), float("nan"))
    lane = torch.arange(32)
    r, j = lane // 4, lane % 4
    for m in range(4):
        for i in range(4):
            number, minus = operand_pairs(bits, words, m, i)
            for p in range(2):
                value = bf16((number >> (16 * p)) & 0xFFFF) - bf16((minus >> (16 * p)) & 0xFFFF)
                # Row and column of A that mma.m16n8k16 gives register i, and the columns that
                # the kernel puts there: chunk j of the activations, four words from each half.
                column = 32 * (m // 2) + 8 * j + 4 * (m % 2) + 2 * (i // 2) + p
                out[:, :, r + 8 * (i % 2), column] = value
    return out.transpose(1, 2).reshape(tiles * 16, -1)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("form", FORMATS)
def test_the_kernels_bit_operations_give_the_stored_codes(form, paired):
    matrix = random_matrix(form, 64, 320)
    codes = unpack_codes(matrix.base, matrix.high, matrix.entry).flatten(1)[:, :320].float()
    seen = device_codes(to_fragments(matrix, 5, paired=paired))
    if paired:
        # Tile t: gate rows 8t.., then up rows 8t...
        seen = seen.view(-1, 2, 8, 320).transpose(0, 1).reshape(64, 320)
    assert torch.equal(seen, codes)


@pytest.mark.parametrize("form", FORMATS)
def test_scales_lie_by_row_pairs(form):
    matrix = random_matrix(form, 32, 256)
    runs = 64 // matrix.entry.group
    tiled = to_fragments(matrix, 4)
    scales = tiled.words[..., 4 * fragment_order.code_bytes(matrix.entry.bits) :]
    pairs = scales.contiguous().view(torch.float16).view(2, 4, runs, 8, 2)
    for tile, group, run, r, h in ((0, 0, 0, 0, 0), (1, 3, runs - 1, 7, 1), (1, 2, 0, 3, 0)):
        want = matrix.scales[16 * tile + 8 * h + r, group * runs + run]
        assert pairs[tile, group, run, r, h] == want
