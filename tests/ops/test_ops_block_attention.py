"""Block attention against loops over keys, at window borders, and what it must not read."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ninfer.ops import PagedKV, RaggedRows, block_attention, paged_attention, read_kv, write_kv
from ninfer.ops.case import Inputs

FLOAT64 = torch.float64
Scene = tuple[Tensor, Tensor, Tensor, PagedKV, RaggedRows]


def scene(
    new: list[int], context: list[int], heads: tuple[int, int], dim: int, form: str, page: int
) -> Scene:
    inputs = Inputs(FLOAT64, torch.device("cpu"), seed=3)
    rows = inputs.ragged(new, context, page)
    pages = sum(-(-(n + c) // page) for n, c in zip(new, context, strict=True)) + 1
    shape = (sum(new), heads[1], dim)
    q, keys, values = inputs.normal(sum(new), heads[0], dim), *inputs.normal(2, *shape)
    return q, keys, values, inputs.cache(form, pages, heads[1], dim, page), rows


def context_row(cache: PagedKV, rows: RaggedRows, sequence: int, at: int) -> tuple[Tensor, Tensor]:
    """Key and value [Hkv, D] of one cached position."""
    page = int(rows.page_table[sequence, at // cache.page_size])
    keys, values = read_kv(cache, torch.tensor([page * cache.page_size + at % cache.page_size]))
    return keys[0].double(), values[0].double()


def loops(scene: Scene, window: int | None, scale: float) -> Tensor:
    """Each row and head over the positions it sees, one key at a time."""
    q, keys, values, cache, rows = scene
    out = torch.zeros_like(q)
    for b, (start, stop) in enumerate(rows.spans()):
        length = int(rows.kv_lengths[b])
        context = length - (stop - start)
        seen = [context_row(cache, rows, b, p) for p in range(context)]
        seen += [(keys[row], values[row]) for row in range(start, stop)]
        for row in range(start, stop):
            position = context + row - start
            near = [p for p in range(length) if window is None or abs(p - position) < window]
            for h in range(q.shape[1]):
                shared = h // (q.shape[1] // keys.shape[1])
                powers = {
                    p: math.exp(scale * float((q[row, h] * seen[p][0][shared]).sum())) for p in near
                }
                for p in near:
                    out[row, h] += powers[p] / sum(powers.values()) * seen[p][1][shared]
    return out


@pytest.mark.parametrize("form", ["fp32", "bf16", "int8", "fp8", "int4"])
@pytest.mark.parametrize("window", [None, 1, 4, 7, 100])
def test_loops(form: str, window: int | None):
    given = scene([3, 0, 1, 6], [5, 2, 9, 0], (6, 2), 8, form, 4)
    got = block_attention(*given, window=window, scale=0.4)
    assert (got - loops(given, window, 0.4)).abs().max() < 1e-13


# A context of 20 and a window of w: the first row sees w - 1 positions of it.
@pytest.mark.parametrize("window", [3, 4, 5, 19, 20, 21, 22, 23])
def test_window_reaches_exactly_its_distance(window: int):
    q, keys, values, cache, rows = scene([3], [20], (2, 1), 8, "fp32", 4)
    before = block_attention(q, keys, values, cache, rows, window=window, scale=0.3)
    for at in range(20):
        page = int(rows.page_table[0, at // 4])
        moved = replace(cache, values=cache.values.clone())
        moved.values[page, at % 4] += 5
        after = block_attention(q, keys, values, moved, rows, window=window, scale=0.3)
        changed = (after != before).flatten(1).any(1).tolist()
        assert changed == [20 + row - at < window for row in range(3)]


def test_rows_see_the_block_in_both_directions():
    q, keys, values, cache, rows = scene([4], [6], (2, 1), 8, "fp32", 4)
    before = block_attention(q, keys, values, cache, rows, window=3, scale=0.3)
    for column in range(4):
        moved = values.clone()
        moved[column] += 5
        after = block_attention(q, keys, moved, cache, rows, window=3, scale=0.3)
        changed = (after != before).flatten(1).any(1).tolist()
        assert changed == [abs(row - column) < 3 for row in range(4)]


def test_pages_before_the_window_are_not_read():
    given = scene([2], [40], (2, 1), 8, "fp32", 4)
    q, keys, values, cache, rows = given
    want = block_attention(*given, window=10, scale=0.3)
    # The first row sees positions from 31 on, which lie in page 7 of the sequence.
    for page in rows.page_table[0, :7].tolist():
        cache.keys[page], cache.values[page] = torch.nan, torch.nan
    rows.page_table[0, :7] = -1
    assert torch.equal(block_attention(q, keys, values, cache, rows, window=10, scale=0.3), want)
    rows.page_table[0, 7] = -1
    with pytest.raises((IndexError, RuntimeError), match="out of range"):
        block_attention(q, keys, values, cache, rows, window=10, scale=0.3)


def test_last_row_of_a_block_equals_causal_attention_over_everything():
    q, keys, values, cache, rows = scene([5], [70], (4, 2), 16, "fp32", 64)
    slots = torch.tensor([int(rows.page_table[0, p // 64]) * 64 + p % 64 for p in range(70, 75)])
    single = (q.float(), keys.float(), values.float())
    got = block_attention(*single, cache, rows, window=None, scale=0.25)
    write_kv(single[1], single[2], cache, slots)
    want = paged_attention(single[0], cache, rows, scale=0.25)
    torch.testing.assert_close(got[-1], want[-1])
    assert (got[0] - want[0]).abs().max() > 1e-3


def test_wrong_arguments_are_named():
    q, keys, values, cache, rows = scene([2], [3], (4, 2), 8, "fp32", 4)
    with pytest.raises(ValueError, match="block_attention: window is 0"):
        block_attention(q, keys, values, cache, rows, window=0, scale=1.0)
    with pytest.raises(ValueError, match=r"block_attention: keys is torch\.float32"):
        block_attention(q, keys.float(), values, cache, rows, window=1, scale=1.0)
    with pytest.raises(ValueError, match="block_attention: q is of 3 heads"):
        block_attention(q[:, :3], keys, values, cache, rows, window=1, scale=1.0)
    with pytest.raises(ValueError, match="block_attention: values is of shape"):
        block_attention(q, keys, values[:1], cache, rows, window=1, scale=1.0)
