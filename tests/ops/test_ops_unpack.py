"""The assembly of the codecs, run instruction by instruction, gives the stored codes."""

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from ninfer.formats import quantise
from ninfer.formats.grouped import pack, unpack
from ninfer.ops.linear import unpack as codec
from ninfer.ops.linear.fragment_order import code_bytes, to_fragments

Registers = dict[str, np.ndarray]


def halves(words: np.ndarray) -> torch.Tensor:
    """bf16 pairs as float32, low half first: [..., 2]."""
    pairs = torch.from_numpy(words.astype(np.uint32).view(np.int32)).unsqueeze(-1)
    return pairs.view(torch.bfloat16).float()


def fma_pairs(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """fma.rn.bf16x2; float32 holds product and sum of these small numbers exactly."""
    exact = halves(a).double() * halves(b).double() + halves(c).double()
    rounded = exact.bfloat16().contiguous()
    return rounded.view(torch.int32).squeeze(-1).numpy().view(np.uint32)


def shift_wrapped(low: np.ndarray, high: np.ndarray, count: np.ndarray) -> np.ndarray:
    both = (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
    return (both >> (count.astype(np.uint64) & np.uint64(31))).astype(np.uint32)


def and_or(a: np.ndarray, b: np.ndarray, c: np.ndarray, table: np.ndarray) -> np.ndarray:
    assert int(np.max(table)) == 0xEA
    return (a & b) | c


INSTRUCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "mov.b32": lambda a: a,
    "shr.u32": lambda a, count: a >> count,
    "shl.b32": lambda a, count: a << count,
    "shf.r.wrap.b32": shift_wrapped,
    "lop3.b32": and_or,
    "fma.rn.bf16x2": fma_pairs,
}


def run(assembly: str, outputs: int, *inputs: np.ndarray) -> list[np.ndarray]:
    """Outputs $0.. of a block of PTX on inputs of one shape, which follow them."""
    registers: Registers = {f"${outputs + i}": x.astype(np.uint32) for i, x in enumerate(inputs)}
    for line in re.findall(r"[^;{}\n]+(?=;)", assembly):
        name, _, rest = line.strip().partition(" ")
        if name == ".reg":
            continue
        target, *sources = [part.strip() for part in rest.split(",")]
        values = [
            registers[s] if s in registers else np.full_like(inputs[0], int(s, 0), np.uint32)
            for s in sources
        ]
        registers[target] = INSTRUCTIONS[name](*values)
    return [registers[f"${i}"] for i in range(outputs)]


def tile_words(form: str) -> tuple[np.ndarray, torch.Tensor]:
    """The code words [count] of one block of 16 x 64 and the codes [16, 64] in it."""
    matrix = quantise(torch.randn(16, 64), form)
    block = to_fragments(matrix, 2).words[0, 0, : code_bytes(matrix.entry.bits)]
    return block.numpy().view(np.uint32), unpack(matrix)[0][:, :64].int()


# Lane 4 r + j, and the word m of the lane, which is 2 c + m0.
R, J, M = (part.ravel() for part in np.meshgrid(range(8), range(4), range(4), indexing="ij"))
WORD = 4 * (4 * R + J) + M
C, M0 = M // 2, M % 2


def nibble_words(words: np.ndarray, bits: int) -> list[np.ndarray]:
    """Inputs of the assembly of 4- to 6-bit codes, as the device function prepares them."""
    lane = 4 * R + J
    if bits == 4:
        return [words[WORD]]
    place, turn = (128 + lane, 4 * M) if bits == 5 else (128 + 2 * lane + C, 8 * M0)
    high = words[place]
    return [words[WORD], shift_wrapped(high, high, turn)]


@pytest.mark.parametrize(
    ("form", "bits"), [("Q4G64_F16S", 4), ("Q5G64_F16S", 5), ("Q6G64_F16S", 6)]
)
def test_nibble_assembly(form: str, bits: int):
    words, codes = tile_words(form)
    outputs = run(codec._assembly(bits), 4, *nibble_words(words, bits))
    for h in range(2):
        for e in range(2):
            got = halves(outputs[h + 2 * e])
            for p in range(2):
                want = codes[8 * h + R, 32 * C + 8 * J + 4 * M0 + 2 * e + p]
                assert torch.equal(got[:, p].int(), want), (h, e, p)


def test_byte_assembly():
    words, codes = tile_words("W8G32_F16S")
    # Two half blocks; of a lane's words m, c is in the place of the half of the half block.
    for half in range(2):
        outputs = run(codec._assembly8(), 2, words[128 * half + WORD])
        for h in range(2):
            got = halves(outputs[h])
            for p in range(2):
                want = codes[8 * h + R, 32 * half + 8 * J + 4 * C + 2 * M0 + p]
                assert torch.equal(got[:, p].int(), want), (half, h, p)


@pytest.mark.parametrize("bits", [4, 5, 6])
def test_every_code_is_reached(bits: int):
    """All codes of the width pass through the assembly, not only those that a matrix has."""
    codes = torch.arange(-(1 << (bits - 1)), 1 << (bits - 1)).repeat(16 * 64 // (1 << bits))
    matrix = pack(codes.view(16, 64).to(torch.int8), torch.ones(16, 1).half(), f"Q{bits}G64_F16S")
    words = to_fragments(matrix, 2).words[0, 0, : code_bytes(bits)].numpy().view(np.uint32)
    outputs = run(codec._assembly(bits), 4, *nibble_words(words, bits))
    seen = torch.cat([halves(x).flatten() for x in outputs])
    assert torch.equal(seen.int().sort().values, codes.int().sort().values)


@triton.jit
def codes_of(
    words,
    out,
    BITS: tl.constexpr,
    PLAIN: tl.constexpr,
    ROWS: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """Both planes [2, ROWS, 64] (32 columns of 8-bit codes) of one block in each tile."""
    WIDTH: tl.constexpr = 32 if BITS == 8 else 64
    row, n = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    block = (words + row // 8 * (32 * BITS))[:, None]
    r = (row % 8)[:, None]
    if BITS == 8:
        below, above = codec.unpack_bytes(block, r, PLAIN, OPERAND)
    else:
        below, above = codec.unpack_nibbles(block, r, BITS, PLAIN, OPERAND)
    at = out + row[:, None] * WIDTH + n[None, :]
    tl.store(at, below.to(tl.float32))
    tl.store(at + ROWS * WIDTH, above.to(tl.float32))


@pytest.mark.gpu
@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("rows", [8, 16, 64])
@pytest.mark.parametrize("bits", [4, 5, 6, 8])
def test_both_forms_give_the_same_codes(bits: int, rows: int, warps: int):
    """Whatever way the compiler lays a tile over threads."""
    count = rows // 8 * 32 * bits
    words = torch.randint(-(2**31), 2**31 - 1, (count,), dtype=torch.int32, device="cuda")
    found = []
    for plain in (True, False):
        out = torch.full((2, rows, 32 if bits == 8 else 64), torch.nan, device="cuda")
        codes_of[(1,)](words, out, bits, plain, rows, tl.bfloat16, num_warps=warps)
        found.append(out)
    assert torch.equal(*found)


@pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
@pytest.mark.parametrize(
    ("form", "bits"), [("Q4G64_F16S", 4), ("Q5G64_F16S", 5), ("Q6G64_F16S", 6)]
)
def test_planes_stand_in_product_order(form: str, bits: int):
    words, codes = tile_words(form)
    out = torch.full((2, 8, 64), torch.nan)
    columns = torch.empty(64, dtype=torch.int32)
    block = torch.from_numpy(words.view(np.int32).copy())
    codes_of[(1,)](block, out, bits, True, 8, tl.float32)
    columns_of[(1,)](columns, 64)
    for h in range(2):
        assert torch.equal(out[h].int(), codes[8 * h : 8 * h + 8, columns.long()])


@triton.jit
def columns_of(out, COUNT: tl.constexpr):
    """The column at each place."""
    n = tl.arange(0, COUNT)
    tl.store(out + n, codec.product_columns(n))


@triton.jit
def placed(even, odd, out, BYTES: tl.constexpr):
    """Bits of the plane that words of pairs become."""
    row, y = tl.arange(0, 8)[:, None], tl.arange(0, 16)[None, :]
    WIDTH: tl.constexpr = 32 if BYTES else 64
    if BYTES:
        plane = codec._byte_operand(tl.load(even + row * 16 + y))
    else:
        plane = codec._operand(tl.load(even + row * 16 + y), tl.load(odd + row * 16 + y))
    at = out + row * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(at, plane.to(tl.int16, bitcast=True))


@pytest.mark.parametrize("is_bytes", [False, True])
def test_pairs_of_a_lane_go_to_their_places(is_bytes: bool):
    """Every half of every word carries its place's number, which must arrive there."""
    width = 32 if is_bytes else 64
    n = torch.arange(width)
    m, e, j, p = n // 16, n // 8 % 2, n // 2 % 4, n % 2
    words = torch.zeros(2, 8, 16, dtype=torch.int32)
    for row in range(8):
        for place in range(width):
            value = (64 * row + place) << (16 * int(p[place]))
            if is_bytes:
                words[0, row, 4 * j[place] + 2 * m[place] + e[place]] |= value
            else:
                words[e[place], row, 4 * j[place] + m[place]] |= value
    out = torch.zeros(8, width, dtype=torch.int16)
    placed[(1,)](words[0].contiguous(), words[1].contiguous(), out, is_bytes)
    want = 64 * torch.arange(8)[:, None] + n
    assert torch.equal(out.int(), want.int())


@triton.jit
def high_words(words, out, BITS: tl.constexpr):
    """What the assembly gets beside the words of a block."""
    row, y = tl.arange(0, 8)[:, None], tl.arange(0, 16)[None, :]
    tl.store(out + row * 16 + y, codec.turned_high(words + 0 * row, row, BITS))


@pytest.mark.parametrize("bits", [5, 6])
def test_high_words_come_to_their_word_turned(bits: int):
    words = torch.randint(-(2**31), 2**31 - 1, (32 * bits,), dtype=torch.int32)
    out = torch.zeros(8 * 16, dtype=torch.int32)
    high_words[(1,)](words, out, bits)
    want = nibble_words(words.numpy().view(np.uint32), bits)[1]
    assert np.array_equal(out.numpy().view(np.uint32), want)
