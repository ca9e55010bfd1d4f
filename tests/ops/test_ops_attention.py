"""Paged attention against loops in Python floats and torch's own attention."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ninfer.ops import PagedKV, RaggedRows, paged_attention, read_kv
from ninfer.ops.attention import reference
from ninfer.ops.case import Inputs

FLOAT64 = torch.float64


def scene(
    new: list[int], cached: list[int], heads: tuple[int, int], dim: int, form: str, page: int
) -> tuple[Tensor, PagedKV, RaggedRows]:
    inputs = Inputs(FLOAT64, torch.device("cpu"), seed=5)
    rows = inputs.ragged(new, cached, page)
    pages = int(rows.page_table.max()) + 2
    return (
        inputs.normal(sum(new), heads[0], dim),
        inputs.cache(form, pages, heads[1], dim, page),
        rows,
    )


def sequence_kv(cache: PagedKV, rows: RaggedRows, sequence: int) -> tuple[Tensor, Tensor]:
    """Keys and values of one sequence, token by token through the page table."""
    slots = []
    for t in range(int(rows.kv_lengths[sequence])):
        page = int(rows.page_table[sequence, t // cache.page_size])
        slots.append(page * cache.page_size + t % cache.page_size)
    keys, values = read_kv(cache, torch.tensor(slots))
    return keys.double(), values.double()


def loops(q: Tensor, cache: PagedKV, rows: RaggedRows, scale: float) -> Tensor:
    """Softmax attention of each row and head, one key at a time."""
    out = torch.zeros_like(q)
    for b, (start, stop) in enumerate(rows.spans()):
        keys, values = sequence_kv(cache, rows, b)
        for row in range(start, stop):
            position = int(rows.kv_lengths[b]) - (stop - start) + row - start
            for h in range(q.shape[1]):
                shared = h // (q.shape[1] // keys.shape[1])
                scores = [
                    scale * sum(a * c for a, c in zip(q[row, h].tolist(), key, strict=True))
                    for key in keys[: position + 1, shared].tolist()
                ]
                top = max(scores)
                powers = [math.exp(s - top) for s in scores]
                for p, power in enumerate(powers):
                    out[row, h] += power / sum(powers) * values[p, shared]
    return out


@pytest.mark.parametrize("form", ["fp32", "bf16", "int8", "fp8", "int4"])
def test_loops(form: str):
    q, cache, rows = scene([3, 0, 1, 6], [5, 2, 7, 0], (6, 2), 8, form, 4)
    got = paged_attention(q, cache, rows, scale=0.4)
    assert (got - loops(q, cache, rows, 0.4)).abs().max() < 1e-13


@pytest.mark.parametrize("heads", [(24, 4), (16, 2), (4, 4)])
def test_torch_attention(heads: tuple[int, int]):
    q, cache, rows = scene([1, 70, 5], [130, 0, 64], heads, 256, "bf16", 64)
    got = paged_attention(q, cache, rows, scale=1 / 16)
    single = paged_attention(q.float(), cache, rows, scale=1 / 16)
    for b, (start, stop) in enumerate(rows.spans()):
        keys, values = sequence_kv(cache, rows, b)
        length, count = keys.shape[0], stop - start
        seen = torch.ones(count, length, dtype=torch.bool).tril(length - count)
        want = functional.scaled_dot_product_attention(
            q[start:stop].transpose(0, 1),
            keys.transpose(0, 1),
            values.transpose(0, 1),
            attn_mask=seen,
            scale=1 / 16,
            enable_gqa=True,
        ).transpose(0, 1)
        assert (got[start:stop] - want).abs().max() < 1e-13
        assert (single[start:stop] - want).abs().max() < 1e-5


def test_future_and_foreign_keys_do_not_matter():
    q, cache, rows = scene([2, 1], [62, 3], (2, 1), 16, "fp32", 64)
    want = paged_attention(q, cache, rows, scale=0.25)
    live = torch.zeros(cache.keys.shape[:2], dtype=torch.bool)
    for b, length in enumerate(rows.kv_lengths.tolist()):
        for t in range(length):
            live[rows.page_table[b, t // 64], t % 64] = True
    cache.keys[~live], cache.values[~live] = torch.nan, torch.nan
    assert torch.equal(paged_attention(q, cache, rows, scale=0.25), want)
    last = int(rows.page_table[0, 63 // 64])
    cache.keys[last, 63], cache.values[last, 63] = 1e4, 1e4
    got = paged_attention(q, cache, rows, scale=0.25)
    assert torch.equal(got[0], want[0])
    assert not torch.equal(got[1], want[1])


def test_query_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch):
    q, cache, rows = scene([90], [40], (4, 2), 32, "fp32", 64)
    whole = paged_attention(q, cache, rows, scale=0.2)
    monkeypatch.setattr(reference, "_SCORES", 7 * 4 * reference.SPLIT)
    blocks = []
    original = reference._attend_block

    def spy(q: Tensor, keys: Tensor, values: Tensor, first: int, scale: float) -> Tensor:
        blocks.append((first, q.shape[0]))
        return original(q, keys, values, first, scale)

    monkeypatch.setattr(reference, "_attend_block", spy)
    assert (paged_attention(q, cache, rows, scale=0.2) - whole).abs().max() < 1e-14
    assert blocks == [(40 + i, min(7, 90 - i)) for i in range(0, 90, 7)]


def test_rows_do_not_depend_on_the_others_in_the_call():
    q, cache, rows = scene([66], [62], (4, 2), 32, "fp32", 64)
    whole = paged_attention(q, cache, rows, scale=0.2)
    for t in range(66):
        alone = RaggedRows(
            torch.tensor([0, 1]), torch.tensor([63 + t]), rows.page_table, rows.state_slots
        )
        got = paged_attention(q[t : t + 1], cache, alone, scale=0.2)
        assert torch.equal(got[0], whole[t])


def test_large_scores_do_not_overflow():
    q, cache, rows = scene([4], [9], (2, 1), 16, "fp32", 64)
    got = paged_attention((q * 1e4).float(), cache, rows, scale=10.0)
    assert torch.isfinite(got).all()


@pytest.mark.parametrize("page", [-1, 99])
def test_page_outside_the_cache_is_an_error(page: int):
    q, cache, rows = scene([1], [70], (2, 1), 16, "fp32", 64)
    rows.page_table[0, 1] = page
    with pytest.raises((IndexError, RuntimeError), match="out of range"):
        paged_attention(q, cache, rows, scale=0.25)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", [0, 1, 5])
def test_what_stands_behind_a_row_cannot_spoil_it(bad: float, where: int) -> None:
    """A draft whose key or value is not finite fails itself and those behind it, no other."""
    inputs = Inputs(torch.float32, torch.device("cpu"), 3)
    rows = inputs.ragged([6, 6], [70, 3])
    cache = inputs.cache("fp32", 5, 2, 64)
    q = inputs.normal(12, 4, 64)
    want = paged_attention(q, cache, rows, scale=0.125)
    position = 70 + where
    page = int(rows.page_table[0, position // 64])
    for words in (cache.keys, cache.values):
        spoiled = words.clone()
        words[page, position % 64, 1, 7] = bad
        got = paged_attention(q, cache, rows, scale=0.125)
        words.copy_(spoiled)
        clean = [row for row in range(12) if not where <= row < 6]
        assert torch.equal(got[clean], want[clean])
        # An infinite key can still weigh zero.
        spoils = math.isnan(bad) or words is cache.values
        assert not spoils or not bool(torch.isfinite(got[where:6]).flatten(1).all(1).any())
