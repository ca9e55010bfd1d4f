"""Attention kernels on a card: rows alone bit for bit, borders, graphs that outlive their lengths,
long contexts."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from ninfer.ops import (
    PagedKV,
    RaggedRows,
    block_attention,
    paged_attention,
    read_kv,
    slice_attention,
    write_kv,
)
from ninfer.ops.attention import portable
from ninfer.ops.attention import reference as attention_reference
from ninfer.ops.block_attention import reference as block_reference
from ninfer.ops.case import Inputs
from ninfer.ops.dispatch import set_backend
from ninfer.ops.kv_cache import reference as cache_reference
from ninfer.ops.tolerance import BF16, in_row_sizes
from ninfer.ops.vision import reference as vision_reference

pytestmark = pytest.mark.gpu

FORMATS = ("bf16", "int8", "fp8")
HEADS = {"27B": (24, 4), "35B": (16, 2)}
SPLIT = 512


@pytest.fixture(autouse=True)
def on_this_card() -> Iterator[None]:
    major, minor = torch.cuda.get_device_capability()
    set_backend("triton", 10 * major + minor)
    yield
    set_backend("reference")


Scene = tuple[Tensor, PagedKV, RaggedRows]


def scene(
    new: list[int], cached: list[int], form: str, heads: tuple[int, int], dim: int = 256
) -> Scene:
    inputs = Inputs(torch.bfloat16, torch.device("cuda"), 3)
    rows = inputs.ragged(new, cached)
    pages = int(rows.page_table.max()) + 2
    return inputs.normal(sum(new), heads[0], dim), inputs.cache(form, pages, heads[1], dim), rows


def exact(q: Tensor, cache: PagedKV, rows: RaggedRows) -> Tensor:
    return attention_reference.paged_attention(q.double(), cache, rows, scale=1 / 16)


def alone(rows: RaggedRows, length: int, count: int = 1) -> RaggedRows:
    """The last `count` rows of a sequence that is `length` long."""
    device = rows.offsets.device
    return RaggedRows(
        torch.tensor([0, count], device=device),
        torch.tensor([length], device=device),
        rows.page_table[:1],
        rows.state_slots[:1],
    )


def same_bits(x: Tensor, y: Tensor) -> bool:
    return torch.equal(x.contiguous().view(torch.int16), y.contiguous().view(torch.int16))


def off(got: Tensor, want: Tensor) -> str | None:
    """What is wrong, each row judged by its own size: values shrink with the number of keys."""
    return BF16.violation(*in_row_sizes(got, want))


@pytest.mark.parametrize("heads", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("form", FORMATS)
def test_a_row_is_the_same_for_every_number_of_rows(form: str, heads: tuple[int, int]):
    """One, few and many rows, by splits and by whole rows, across the border of a split."""
    q, cache, rows = scene([200], [2 * SPLIT - 100], form, heads)
    together = paged_attention(q, cache, rows, scale=1 / 16)
    for count in (1, 2, 3, 4, 5, 8, 15, 16, 17, 32, 63, 64, 65, 128):
        # A sum in another order shows in one rounding of tens of thousands: single rows are many.
        for first in range(200) if count == 1 else (0, 99, 100, 200 - count):
            part = slice(first, first + count)
            if part.stop > 200:
                continue
            length = 2 * SPLIT - 100 + part.stop
            got = paged_attention(q[part], cache, alone(rows, length, count), scale=1 / 16)
            assert same_bits(got, together[part]), (count, first)


@pytest.mark.parametrize("form", FORMATS)
def test_both_routes_give_the_same_bits(form: str, monkeypatch: pytest.MonkeyPatch):
    q, cache, rows = scene([4, 1, 16], [1500, 70, SPLIT - 8], form, (24, 4))
    splits = paged_attention(q, cache, rows, scale=1 / 16)
    monkeypatch.setattr(portable, "MOST_PARTIAL_BYTES", 0)
    assert same_bits(paged_attention(q, cache, rows, scale=1 / 16), splits)


@pytest.mark.parametrize("form", FORMATS)
def test_company_does_not_change_a_sequence(form: str):
    q, cache, rows = scene([4, 1, 9, 3], [900, 5000, 61, 0], form, (24, 4))
    together = paged_attention(q, cache, rows, scale=1 / 16)
    got = paged_attention(q[:4], cache, alone(rows, 904, 4), scale=1 / 16)
    assert same_bits(got, together[:4])


BORDERS = [size + by for size in (64, SPLIT, 2 * SPLIT, 8192) for by in (-1, 0, 1)]


@pytest.mark.parametrize("cached", [0, 1, *BORDERS])
@pytest.mark.parametrize("form", [*FORMATS, "fp32"])
def test_borders_of_tiles_and_splits(form: str, cached: int):
    for count in (1, 4):
        q, cache, rows = scene([count], [cached], form, (24, 4))
        got = paged_attention(q, cache, rows, scale=1 / 16)
        assert off(got, exact(q, cache, rows)) is None


@pytest.mark.parametrize("count", [15, 16, 17, 63, 64, 65, 300])
@pytest.mark.parametrize("form", FORMATS)
def test_borders_of_the_routes(form: str, count: int):
    q, cache, rows = scene([count, 1], [700, 80], form, (24, 4))
    assert off(paged_attention(q, cache, rows, scale=1 / 16), exact(q, cache, rows)) is None


@pytest.mark.parametrize("form", FORMATS)
def test_a_graph_serves_every_context(form: str):
    """Captured once with a table for 8192 positions, replayed with lengths that follow."""
    q, cache, rows = scene([4], [8188], form, (24, 4))
    paged_attention(q, cache, rows, scale=1 / 16)  # compiled before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = paged_attention(q, cache, rows, scale=1 / 16)
    for length in (4, 5, 67, SPLIT, SPLIT + 1, 3000, 8192):
        rows.kv_lengths.fill_(length)
        q.copy_(torch.randn(q.shape, device="cuda"))
        out.fill_(torch.nan)
        graph.replay()
        assert same_bits(out, paged_attention(q, cache, rows, scale=1 / 16))
        assert off(out, exact(q, cache, rows)) is None


@pytest.mark.parametrize("count", [1, 4])
def test_256k_positions(count: int):
    q, cache, rows = scene([count], [262_144 - count], "int8", (24, 4))
    got = paged_attention(q, cache, rows, scale=1 / 16)
    want = attention_reference.paged_attention(q.float(), cache, rows, scale=1 / 16)
    assert off(got, want) is None


@pytest.mark.parametrize("form", FORMATS)
def test_a_bad_draft_spoils_itself_and_what_follows(form: str):
    q, cache, rows = scene([6], [700], form, (24, 4))
    want = paged_attention(q, cache, rows, scale=1 / 16)
    slot = rows.page_table[0, 702 // 64] * 64 + 702 % 64
    bad = torch.randn(1, 4, 256, device="cuda").bfloat16()
    bad[0, 1, 7] = torch.nan
    write_kv(bad, bad, cache, slot.view(1))
    got = paged_attention(q, cache, rows, scale=1 / 16)
    assert same_bits(got[:2], want[:2])
    assert not torch.isfinite(got[2:, 6:12]).flatten(1).all(1).any()
    assert torch.isfinite(got[:, :6]).all()


@pytest.mark.parametrize("window", [None, 1, 100, SPLIT, 2048])
@pytest.mark.parametrize("form", FORMATS)
def test_blocks(form: str, window: int | None):
    q, cache, rows = scene([16, 8], [3000, 20], form, (32, 8), 128)
    keys, values = torch.randn(2, 24, 8, 128, device="cuda").bfloat16()
    got = block_attention(q, keys, values, cache, rows, window=window, scale=0.088)
    wide = (x.double() for x in (q, keys, values))
    want = block_reference.block_attention(*wide, cache, rows, window=window, scale=0.088)
    assert off(got, want) is None


@pytest.mark.parametrize("length", [64, 65, 1000])
def test_slices(length: int):
    q, k, v = torch.randn(3, 2 * length, 16, 72, device="cuda").bfloat16()
    got = slice_attention(q, k, v, length=length, scale=0.118)
    wide = (x.double() for x in (q, k, v))
    want = vision_reference.slice_attention(*wide, length=length, scale=0.118)
    assert BF16.violation(got, want) is None


@pytest.mark.parametrize("form", [*FORMATS, "fp32"])
def test_written_words_are_the_codecs(form: str):
    inputs = Inputs(torch.bfloat16, torch.device("cuda"), 2)
    mine = inputs.cache(form, 20, 4, 256)
    theirs = PagedKV(form, *(None if x is None else x.clone() for x in planes_of(mine)))
    keys, values = inputs.normal(1000, 4, 256, scale=5.0), inputs.normal(1000, 4, 256)
    slots = inputs.shuffled(20 * 64)[:1000]
    write_kv(keys, values, mine, slots)
    cache_reference.write_kv(keys, values, theirs, slots)
    for x, y in zip(planes_of(mine), planes_of(theirs), strict=True):
        assert x is None or torch.equal(x.view(torch.uint8), y.view(torch.uint8))
    got, want = read_kv(mine, slots), cache_reference.read_kv(theirs, slots)
    assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])


def planes_of(cache: PagedKV) -> tuple[Tensor | None, ...]:
    return (cache.keys, cache.values, cache.key_scales, cache.value_scales)
