"""The CUDA form of attention on a card: values, rows alone bit for bit, captures, bad drafts."""

import pytest
import torch
from torch import Tensor

from ninfer.ops import PagedKV, RaggedRows
from ninfer.ops.attention import fast, reference
from ninfer.ops.attention.fast_plan import CUTS
from ninfer.ops.case import Inputs
from ninfer.ops.kv_cache import reference as cache_reference
from ninfer.ops.tolerance import BF16, in_row_sizes

pytestmark = pytest.mark.gpu

FORMATS = ("bf16", "int8", "fp8")
HEADS = {"27B": (24, 4), "35B": (16, 2)}
SHORT = CUTS.shorts * CUTS.short
SCALE = 1 / 16
Scene = tuple[Tensor, PagedKV, RaggedRows]


def scene(new: list[int], cached: list[int], form: str, heads: tuple[int, int] = (24, 4)) -> Scene:
    inputs = Inputs(torch.bfloat16, torch.device("cuda"), 3)
    rows = inputs.ragged(new, cached)
    pages = int(rows.page_table.max()) + 2
    return inputs.normal(sum(new), heads[0], 256), inputs.cache(form, pages, heads[1], 256), rows


def run(call: Scene) -> Tensor:
    """The call in memory full of NaN, so that what is not written shows."""
    q, cache, rows = call
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True)
    try:
        return fast.paged_attention(q, cache, rows, scale=SCALE)
    finally:
        torch.use_deterministic_algorithms(False)


def off(got: Tensor, call: Scene) -> str | None:
    q, cache, rows = call
    wide = q.float() if cache.keys.shape[0] > 2000 else q.double()
    want = reference.paged_attention(wide, cache, rows, scale=SCALE)
    return BF16.violation(*in_row_sizes(got, want))


def alone(rows: RaggedRows, length: int, count: int, sequence: int = 0) -> RaggedRows:
    """The last `count` rows of a sequence that is `length` long."""
    device = rows.offsets.device
    part = slice(sequence, sequence + 1)
    ends = torch.tensor([0, count], device=device)
    lengths = torch.tensor([length], device=device)
    return RaggedRows(ends, lengths, rows.page_table[part], rows.state_slots[part])


def same_bits(x: Tensor, y: Tensor) -> bool:
    return torch.equal(x.contiguous().view(torch.int16), y.contiguous().view(torch.int16))


BORDERS = [
    size + by for size in (32, 64, CUTS.short, SHORT, SHORT + CUTS.long) for by in (-1, 0, 1)
]


@pytest.mark.parametrize("heads", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("cached", [0, 1, *BORDERS])
@pytest.mark.parametrize("form", FORMATS)
def test_borders_of_tiles_and_splits(form: str, cached: int, heads: tuple[int, int]):
    for count in (1, 2, 3, 4, 16):
        call = scene([count], [cached], form, heads)
        assert off(run(call), call) is None


@pytest.mark.parametrize("heads", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("form", FORMATS)
def test_a_row_is_the_same_for_every_number_of_rows(form: str, heads: tuple[int, int]):
    """Across the border of short and long splits, alone and beside up to 63 others."""
    cached = SHORT + 3 * CUTS.long - 20
    q, cache, rows = scene([64], [cached], form, heads)
    together = run((q, cache, rows))
    for count in (1, 2, 3, 4, 5, 8, 15, 16, 17, 32, 63):
        for first in range(64) if count == 1 else (0, 19, 64 - count):
            part = slice(first, min(first + count, 64))
            rest = alone(rows, cached + part.stop, part.stop - first)
            assert same_bits(run((q[part], cache, rest)), together[part]), (count, first)


@pytest.mark.parametrize("form", FORMATS)
def test_company_does_not_change_a_sequence(form: str):
    call = q, cache, rows = scene([4, 1, 9, 0, 3], [900, 9000, 61, 5, 0], form)
    together = run(call)
    assert off(together, call) is None
    for sequence, (part, length) in enumerate(((slice(0, 4), 904), (slice(4, 5), 9001))):
        rest = alone(rows, length, part.stop - part.start, sequence)
        assert same_bits(run((q[part], cache, rest)), together[part])


@pytest.mark.parametrize("form", FORMATS)
def test_sixty_four_sequences(form: str):
    call = scene([1] * 64, [37 * i for i in range(64)], form)
    assert off(run(call), call) is None


@pytest.mark.parametrize("form", FORMATS)
def test_a_graph_serves_every_context(form: str):
    """Captured once with a table for 16384 positions, replayed with lengths that follow."""
    q, cache, rows = scene([4], [16380], form)
    fast.ready(cache, 24)
    run((q, cache, rows))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = fast.paged_attention(q, cache, rows, scale=SCALE)
    for length in (4, 5, 67, 129, SHORT, SHORT + 1, 9000, 16384):
        rows.kv_lengths.fill_(length)
        q.copy_(torch.randn(q.shape, device="cuda"))
        out.fill_(torch.nan)
        graph.replay()
        assert same_bits(out, run((q, cache, rows)))
        assert off(out, (q, cache, rows)) is None


def test_rows_behind_the_last_sequence_are_left_alone():
    q, cache, rows = scene([3], [700], "int8")
    longer = torch.cat([q, q])
    got = run((longer, cache, rows))
    assert off(got[:3], (q, cache, rows)) is None
    assert torch.isnan(got[3:]).all()


@pytest.mark.parametrize("count", [1, 4])
def test_256k_positions(count: int):
    call = scene([count], [262_144 - count], "int8")
    assert off(run(call), call) is None


@pytest.mark.parametrize("form", FORMATS)
def test_a_bad_draft_spoils_itself_and_what_follows(form: str):
    q, cache, rows = scene([6], [700], form)
    want = run((q, cache, rows))
    slot = rows.page_table[0, 702 // 64] * 64 + 702 % 64
    bad = torch.randn(1, 4, 256, device="cuda").bfloat16()
    bad[0, 1, 7] = torch.nan
    cache_reference.write_kv(bad, bad, cache, slot.view(1))
    got = run((q, cache, rows))
    assert same_bits(got[:2], want[:2])
    assert not torch.isfinite(got[2:, 6:12]).flatten(1).all(1).any()
    assert torch.isfinite(got[:, :6]).all()


def test_queries_with_strides_and_again_the_same_bits():
    q, cache, rows = scene([4], [5000], "int8")
    want = run((q, cache, rows))
    wide = torch.zeros(4, 48, 256, dtype=torch.bfloat16, device="cuda")
    wide[:, ::2] = q
    for _ in range(50):
        assert same_bits(run((wide[:, ::2], cache, rows)), want)
