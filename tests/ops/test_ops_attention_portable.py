"""Triton forms of attention and the KV cache, interpreted: values, borders, routes, what they leave
alone."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ninfer.errors import ConfigError, UnsupportedError
from ninfer.formats import kv
from ninfer.ops import (
    PagedKV,
    RaggedRows,
    block_attention,
    paged_attention,
    read_kv,
    slice_attention,
    write_kv,
)
from ninfer.ops import kv_cache as cache_ops
from ninfer.ops.attention import plan, portable, reference
from ninfer.ops.block_attention import reference as block_reference
from ninfer.ops.case import Inputs
from ninfer.ops.dispatch import using
from ninfer.ops.kv_cache import reference as cache_reference
from ninfer.ops.tiers import ARCHITECTURES, PORTABLE
from ninfer.ops.tolerance import FLOAT32

# Triton 3.6's interpreter makes scalars of arrays for every range with a run-time bound.
# Numbers that are not finite are part of what is tested; numpy remarks on them.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning"),
]

FORMATS = ("bf16", "fp32", "int8", "fp8", "int4")
# The interpreted tile and split: products of float32 have these sizes on every card.
TILE, SPLIT = 32, 512
SCALE = 0.25


@pytest.fixture(autouse=True)
def kernels_only() -> Iterator[None]:
    with using("portable", only=PORTABLE.ops):
        yield


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a kernel does not write, results and unfinished sums alike, is NaN."""
    plain = torch.empty

    def empty(*shape: object, **options: object) -> Tensor:
        made = plain(*shape, **options)
        return made.fill_(math.nan) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", empty)


Scene = tuple[Tensor, PagedKV, RaggedRows]


def scene(
    new: list[int],
    cached: list[int],
    form: str = "fp32",
    heads: tuple[int, int] = (2, 1),
    dim: int = 64,
    page: int = 64,
    seed: int = 5,
) -> Scene:
    inputs = Inputs(torch.float32, torch.device("cpu"), seed)
    rows = inputs.ragged(new, cached, page)
    pages = int(rows.page_table.max()) + 2
    q = inputs.normal(sum(new), heads[0], dim)
    return q, inputs.cache(form, pages, heads[1], dim, page), rows


def exact(q: Tensor, cache: PagedKV, rows: RaggedRows) -> Tensor:
    return reference.paged_attention(q.double(), cache, rows, scale=SCALE)


def slots_of(cache: PagedKV, rows: RaggedRows, sequence: int) -> Tensor:
    """Cache rows of a sequence, position by position."""
    at = torch.arange(int(rows.kv_lengths[sequence]))
    pages = rows.page_table[sequence, at // cache.page_size]
    return pages * cache.page_size + at % cache.page_size


def whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portable, "MOST_PARTIAL_BYTES", 0)


BORDERS = [0, *(size + by for size in (TILE, 64, SPLIT, 2 * SPLIT) for by in (-1, 0, 1))]


@pytest.mark.parametrize("route", ["splits", "whole rows"])
@pytest.mark.parametrize("cached", BORDERS)
def test_borders_of_tiles_pages_and_splits(
    cached: int, route: str, monkeypatch: pytest.MonkeyPatch
):
    q, cache, rows = scene([2], [cached])
    wide = replace(rows, page_table=torch.nn.functional.pad(rows.page_table, (0, 8), value=-1))
    if route == "whole rows":
        whole_rows(monkeypatch)
    got = paged_attention(q, cache, wide, scale=SCALE)
    assert FLOAT32.violation(got, exact(q, cache, rows)) is None


@pytest.mark.parametrize("count", [1, 3, 4, 5, 7, 8, 9, 63, 64, 65])
def test_borders_of_the_row_tiles(count: int):
    q, cache, rows = scene([count], [40], heads=(4, 2), dim=32)
    got = paged_attention(q, cache, rows, scale=SCALE)
    assert FLOAT32.violation(got, exact(q, cache, rows)) is None


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dim", [16, 72, 80, 128, 320])
def test_heads_of_any_size(form: str, dim: int):
    q, cache, rows = scene([2, 0, 3], [70, 3, 0], form, (6, 2), dim, page=16)
    got = paged_attention(q, cache, rows, scale=SCALE)
    assert FLOAT32.violation(got, exact(q, cache, rows)) is None


@pytest.mark.parametrize("form", ["int8", "fp8", "int4"])
@pytest.mark.parametrize("heads", [(24, 4), (16, 2)], ids=["27B", "35B"])
def test_heads_of_the_models(form: str, heads: tuple[int, int]):
    q, cache, rows = scene([2, 1], [511, 20], form, heads, 256)
    got = paged_attention(q, cache, rows, scale=1 / 16)
    want = reference.paged_attention(q.double(), cache, rows, scale=1 / 16)
    assert FLOAT32.violation(got, want) is None


@pytest.mark.parametrize("form", FORMATS)
def test_both_routes_give_the_same_bits(form: str, monkeypatch: pytest.MonkeyPatch):
    q, cache, rows = scene([3, 1, 2], [2 * SPLIT - 1, 7, SPLIT - 1], form, (4, 2))
    splits = paged_attention(q, cache, rows, scale=SCALE)
    whole_rows(monkeypatch)
    assert torch.equal(paged_attention(q, cache, rows, scale=SCALE), splits)


@pytest.mark.parametrize("route", ["splits", "whole rows"])
def test_rows_behind_the_last_sequence_touch_nothing(route: str, monkeypatch: pytest.MonkeyPatch):
    """A captured call can have more rows than its offsets tell of; what lies behind is not read."""
    q, cache, rows = scene([2, 1], [70, 3])
    far = 1 << 40
    offsets = torch.tensor([*rows.offsets.tolist(), far, far])[:3]
    lengths = torch.tensor([*rows.kv_lengths.tolist(), far])[:2]
    if route == "whole rows":
        whole_rows(monkeypatch)
    more = torch.cat((q, torch.full_like(q[:2], torch.nan)))
    within = replace(rows, offsets=offsets, kv_lengths=lengths)
    got = paged_attention(more, cache, within, scale=SCALE)
    assert torch.equal(got[:3], paged_attention(q, cache, rows, scale=SCALE))


@pytest.mark.parametrize("form", ["bf16", "int8"])
def test_a_row_is_the_same_alone_and_in_company(form: str, monkeypatch: pytest.MonkeyPatch):
    """With one tile of rows, since the interpreter's library sums by the size of a product."""
    monkeypatch.setattr(portable, "few_rows", lambda *_: 32)
    q, cache, rows = scene([9, 2], [SPLIT - 5, 61], form, (4, 2))
    together = paged_attention(q, cache, rows, scale=SCALE)
    for t in range(9):
        alone = RaggedRows(
            torch.tensor([0, 1]),
            torch.tensor([SPLIT - 4 + t]),
            rows.page_table[:1],
            rows.state_slots[:1],
        )
        got = paged_attention(q[t : t + 1], cache, alone, scale=SCALE)
        assert torch.equal(got[0], together[t])


@pytest.mark.parametrize("form", ["bf16", "fp32"])
def test_equal_weights_leave_nothing_to_round(form: str):
    """Scores of zero and small whole numbers: a key too many, too few or misplaced shows."""
    q, cache, rows = scene([5, 1], [SPLIT + 90, 37], form, (6, 2), 32)
    cache.values.copy_(torch.randint(-3, 4, cache.values.shape))
    got = paged_attention(torch.zeros_like(q), cache, rows, scale=SCALE)
    for sequence, (start, stop) in enumerate(rows.spans()):
        values = cache.values.flatten(0, 1)[slots_of(cache, rows, sequence)].float()
        for row in range(start, stop):
            seen = int(rows.kv_lengths[sequence]) - (stop - row) + 1
            want = (values[:seen].sum(0) / seen).repeat_interleave(3, 0)
            assert torch.equal(got[row], want)


@pytest.mark.parametrize("form", FORMATS)
def test_one_key_takes_all_the_weight(form: str):
    """The value of a key comes back as the cache decodes it, for positions on all borders."""
    q, cache, rows = scene([1], [SPLIT + 80], form, (4, 2), 64)
    slots = slots_of(cache, rows, 0)
    for position in (0, TILE, SPLIT - 1, SPLIT + 80):
        key = torch.zeros(1, 2, 64)
        key[0, 0, 3], key[0, 1, 5] = 400.0, 400.0
        _, value = read_kv(cache, slots[position : position + 1])
        before = [x.clone() for x in (cache.keys, cache.key_scales) if x is not None]
        write_kv(key, value, cache, slots[position : position + 1])
        q.zero_()[0, :2, 3], q[0, 2:, 5] = 40.0, 40.0
        got = paged_attention(q, cache, rows, scale=1.0)
        _, value = read_kv(cache, slots[position : position + 1])
        assert torch.equal(got[0], value[0].repeat_interleave(2, 0))
        for x, old in zip((cache.keys, cache.key_scales), before, strict=False):
            assert x is not None
            x.copy_(old)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("form", FORMATS)
def test_what_stands_behind_a_row_cannot_spoil_it(form: str, bad: float):
    q, cache, rows = scene([6, 6], [70, 3], form, (4, 2), 64)
    want = paged_attention(q, cache, rows, scale=SCALE)
    slots = slots_of(cache, rows, 0)[72:73]
    good = torch.randn(1, 2, 64)
    spoiled = good.clone()
    spoiled[0, 1, 7] = bad
    words = [
        x.clone()
        for x in (cache.keys, cache.values, cache.key_scales, cache.value_scales)
        if x is not None
    ]
    for key, value in ((spoiled, good), (good, spoiled)):
        write_kv(key, value, cache, slots)
        got = paged_attention(q, cache, rows, scale=SCALE)
        clean = [row for row in range(12) if not 2 <= row < 6]
        assert torch.equal(got[clean], want[clean])
        assert torch.isfinite(got[2:6, :2]).all()
        # An infinite key of a direct format can still weigh zero.
        spoils = math.isnan(bad) or value is spoiled or form in ("int8", "fp8", "int4")
        assert not spoils or not torch.isfinite(got[2:6, 2:]).flatten(1).all(1).any()
    planes = (cache.keys, cache.values, cache.key_scales, cache.value_scales)
    for x, old in zip((p for p in planes if p is not None), words, strict=True):
        x.copy_(old)
    assert torch.equal(paged_attention(q, cache, rows, scale=SCALE), want)


def test_pages_of_others_and_behind_the_end_are_not_read():
    q, cache, rows = scene([2, 1], [62, 3], dim=16)
    want = paged_attention(q, cache, rows, scale=SCALE)
    live = torch.zeros(cache.keys.shape[:2], dtype=torch.bool)
    for sequence in range(2):
        live.view(-1)[slots_of(cache, rows, sequence)] = True
    cache.keys[~live], cache.values[~live] = math.nan, math.nan
    assert torch.equal(paged_attention(q, cache, rows, scale=SCALE), want)


def test_queries_may_be_a_view():
    q, cache, rows = scene([3], [9], heads=(4, 2), dim=32)
    around = torch.full((3, 6, 48), math.nan)
    around[:, 1:5, 8:40] = q
    got = paged_attention(around[:, 1:5, 8:40], cache, rows, scale=SCALE)
    assert torch.equal(got, paged_attention(q, cache, rows, scale=SCALE))


@pytest.mark.parametrize("window", [None, 1, 33, 64, SPLIT - 1, SPLIT, SPLIT + 1])
@pytest.mark.parametrize("form", ["bf16", "int8"])
def test_windows_on_the_borders(form: str, window: int | None, monkeypatch: pytest.MonkeyPatch):
    q, cache, rows = scene([4, 1, 0], [SPLIT + 100, SPLIT - 1, 9], form, (4, 2))
    inputs = Inputs(torch.float32, torch.device("cpu"), 1)
    keys, values = inputs.normal(2, 5, 2, 64)
    arguments = (q, keys, values, cache, rows)
    doubled = (x.double() for x in (q, keys, values))
    want = block_reference.block_attention(*doubled, cache, rows, window=window, scale=SCALE)
    got = block_attention(*arguments, window=window, scale=SCALE)
    assert FLOAT32.violation(got, want) is None
    whole_rows(monkeypatch)
    assert torch.equal(block_attention(*arguments, window=window, scale=SCALE), got)


@pytest.mark.parametrize("page", [4, 64])
def test_pages_before_the_window_are_not_read(page: int):
    q, cache, rows = scene([2], [200], page=page)
    keys, values = torch.randn(2, 2, 1, 64)
    want = block_attention(q, keys, values, cache, rows, window=60, scale=SCALE)
    first = (200 - 59) // page
    for number in rows.page_table[0, :first].tolist():
        cache.keys[number], cache.values[number] = math.nan, math.nan
    rows.page_table[0, :first] = -1
    got = block_attention(q, keys, values, cache, rows, window=60, scale=SCALE)
    assert torch.equal(got, want)


@pytest.mark.parametrize("length", [1, 31, 32, 33, 100])
def test_slices_do_not_see_each_other(length: int):
    q, k, v = torch.randn(3, 2 * length, 3, 72)
    got = slice_attention(q, k, v, length=length, scale=SCALE)
    with using("reference"):
        want = slice_attention(q.double(), k.double(), v.double(), length=length, scale=SCALE)
    assert FLOAT32.violation(got, want) is None
    v[length:] = math.nan
    assert torch.equal(slice_attention(q, k, v, length=length, scale=SCALE)[:length], got[:length])


def planes(cache: PagedKV) -> list[Tensor]:
    found = (cache.keys, cache.values, cache.key_scales, cache.value_scales)
    return [x.view(torch.uint8) for x in found if x is not None]


def awkward(count: int, heads: int, dim: int) -> Tensor:
    """Rows of ties, zeros, the smallest and largest numbers, and some that are not finite."""
    x = torch.randn(count, heads, dim)
    x[0] = torch.randint(-254, 255, (heads, dim)) / 2
    x[0, :, ::64] = 127.0
    x[1], x[2], x[3] = 0.0, 1e-30, 1e-7
    x[4], x[5] = 3e38, x[5] * 1e8
    x[6] = x[6].bfloat16().float() + 2.0**-9
    x[7, 0, 1], x[7, 1, dim - 1], x[8, 0, 5] = math.nan, math.inf, -math.inf
    return x


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dim", [64, 80, 256, 320])
def test_written_words_are_the_codecs(form: str, dim: int):
    keys, values = awkward(9, 2, dim), awkward(9, 2, dim).flip(0)
    inputs = Inputs(torch.float32, torch.device("cpu"), 2)
    mine, theirs = (inputs.cache(form, 2, 2, dim, 8) for _ in range(2))
    for x, y in zip(planes(mine), planes(theirs), strict=True):
        x.copy_(y)
    slots = torch.randperm(16)[:9]
    # Bits of NaN are not part of a format: what counts is that it decodes to NaN.
    write_kv(keys, values, mine, slots)
    cache_reference.write_kv(keys, values, theirs, slots)
    finite = torch.isfinite(cache_reference.read_kv(theirs, slots)[0]).flatten(1).all(1)
    every = torch.arange(16)
    for got, want in zip(read_kv(mine, every), cache_reference.read_kv(theirs, every), strict=True):
        assert torch.equal(got.nan_to_num(nan=9e9), want.nan_to_num(nan=9e9))
    kept = torch.ones(16, dtype=torch.bool)
    kept[slots[~finite]] = False
    for x, y in zip((mine.keys, mine.key_scales), (theirs.keys, theirs.key_scales), strict=True):
        if x is not None and y is not None:
            x, y = (z.flatten(0, 1)[kept].view(torch.uint8) for z in (x, y))
            assert torch.equal(x, y)


def test_every_e4m3_tie_goes_to_the_even_code():
    """Midpoints of neighbouring codes and their neighbours on both sides, below a scale of 1."""
    codes = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    middle = (codes[1:] + codes[:-1]) / 2
    x = torch.cat([codes, middle, middle.nextafter(codes[1:]), middle.nextafter(codes[:-1])])
    x = torch.cat([x, -x])
    rows = torch.nn.functional.pad(x, (0, -x.shape[0] % 255)).view(-1, 1, 255)
    rows = torch.cat([rows, torch.full((rows.shape[0], 1, 1), 448.0)], 2)
    inputs = Inputs(torch.float32, torch.device("cpu"), 2)
    cache = inputs.cache("fp8", 1, 1, 256, rows.shape[0])
    write_kv(rows, rows, cache, torch.arange(rows.shape[0]))
    assert torch.equal(cache.keys.flatten(0, 2), kv.encode("fp8", rows)[0].flatten(0, 1))


def test_rows_that_are_views_and_a_slot_outside():
    inputs = Inputs(torch.float32, torch.device("cpu"), 2)
    cache = inputs.cache("int8", 2, 2, 64, 4)
    before = [x.clone() for x in planes(cache)]
    wide = torch.randn(3, 5, 80)
    keys, values = wide[:, 1:3, :64], wide[:, 3:, 8:72]
    write_kv(keys, values, cache, torch.tensor([8, -1, 5]))
    untouched = [row for row in range(8) if row != 5]
    for x, old in zip(planes(cache), before, strict=True):
        assert torch.equal(x.flatten(0, 1)[untouched], old.flatten(0, 1)[untouched])
    got = read_kv(cache, torch.tensor([5]))
    want = kv.decode("int8", *kv.encode("int8", torch.stack([keys[2], values[2]])))
    assert torch.equal(torch.cat(got), want)


def test_what_has_no_kernel_is_refused_by_name():
    q, cache, rows = scene([1], [3])
    with pytest.raises(UnsupportedError, match=r"paged_attention: .*float64"):
        paged_attention(q.double(), cache, rows, scale=1.0)
    with pytest.raises(UnsupportedError, match=r"write_kv: .*float64"):
        write_kv(q[:, :1].double(), q[:, :1].double(), cache, torch.tensor([0]))
    with pytest.raises(UnsupportedError, match=r"slice_attention: .*float64"):
        slice_attention(q.double(), q.double(), q.double(), length=1, scale=1.0)
    q, cache, rows = scene([1], [3], "int8", dim=18)
    with pytest.raises(UnsupportedError, match="int8 heads of 18; use kv format bf16"):
        paged_attention(q, cache, rows, scale=1.0)
    assert cache_ops.read_kv is read_kv


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_sizes_are_legal(architecture: int):
    for form in ("bf16", "int8", "fp8", "int4"):
        for dim in (64, 128, 256):
            for found in (
                plan.sizes(architecture, form, dim, wide=False),
                plan.default_sizes(architecture, form, dim),
            ):
                entry = {name: getattr(found, name) for name in found.__slots__}
                table = plan.parse_table({"attention": {"x": {**entry, "source": "y"}}}, "t")
                assert table["x"] == found


def test_tables_are_checked():
    good = plan.default_sizes(90, "int8", 256)
    entry = {name: getattr(good, name) for name in good.__slots__}
    with pytest.raises(ConfigError, match=r"t: int8 256: split is 500, must be in \(256, "):
        plan.parse_table({"attention": {"int8 256": {**entry, "split": 500}}}, "t")
    with pytest.raises(ConfigError, match=r"t: int8 256: .*nonsense"):
        plan.parse_table({"attention": {"int8 256": {**entry, "nonsense": 1}}}, "t")
    assert plan.table(90)["int8 256"].keys == 64


@pytest.mark.parametrize(
    ("dim", "group", "least", "want"),
    [(256, 0, 32, (256, 1)), (72, 0, 32, (32, 3)), (128, 64, 64, (64, 2)), (320, 256, 64, (64, 5))],
)
def test_heads_are_cut_where_scales_are(dim: int, group: int, least: int, want: tuple[int, int]):
    found = plan.head(dim, group, least)
    assert (found.width, found.chunks) == want
