"""KV rows: what is written is read back, in its slot and nowhere else."""

import pytest
import torch

from ninfer.formats import kv
from ninfer.ops import PagedKV, read_kv, write_kv

FORMATS = ("bf16", "fp32", "int8", "fp8", "int4")


def poisoned(form: str, pages: int, page_size: int, heads: int, dim: int) -> PagedKV:
    """Pages of a pattern that no written row has."""
    blank = torch.full((pages, page_size, heads, dim), -3.0)
    keys, key_scales = kv.encode(form, blank)
    values, value_scales = kv.encode(form, blank * 2)
    return PagedKV(form, keys, values, key_scales, value_scales)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("page_size", [4, 64])
def test_rows_come_back_from_their_slots_only(form: str, page_size: int):
    cache = poisoned(form, 3, page_size, 2, 128)
    slots = torch.tensor([2 * page_size + 1, 0, page_size - 1, page_size])
    keys, values = torch.randn(4, 2, 128), torch.randn(4, 2, 128)
    write_kv(keys, values, cache, slots)
    got_keys, got_values = read_kv(cache, slots)
    assert got_keys.dtype is torch.float32
    assert torch.equal(got_keys, kv.decode(form, *kv.encode(form, keys)))
    assert torch.equal(got_values, kv.decode(form, *kv.encode(form, values)))
    others = torch.tensor([s for s in range(3 * page_size) if s not in slots.tolist()])
    rest_keys, rest_values = read_kv(cache, others)
    assert (rest_keys + 3).abs().max() < 0.02
    assert (rest_values + 6).abs().max() < 0.02


def test_slot_is_page_times_page_size_plus_row():
    cache = poisoned("fp32", 3, 4, 1, 8)
    row = torch.arange(8.0).view(1, 1, 8)
    write_kv(row, row + 1, cache, torch.tensor([2 * 4 + 3]))
    assert torch.equal(cache.keys[2, 3, 0], row[0, 0])
    assert torch.equal(cache.values[2, 3, 0], row[0, 0] + 1)


def test_scales_go_with_their_row():
    cache = poisoned("int8", 2, 4, 1, 64)
    assert cache.key_scales is not None
    before = cache.key_scales.clone()
    keys = torch.full((1, 1, 64), 127.0)
    write_kv(keys, keys, cache, torch.tensor([5]))
    assert cache.key_scales[1, 1].item() == 1.0
    changed = (cache.key_scales != before).nonzero().tolist()
    assert changed == [[1, 1, 0, 0]]


@pytest.mark.parametrize("slot", [12, -1])
def test_slot_outside_the_pages_is_refused(slot: int):
    cache = poisoned("fp32", 3, 4, 1, 8)
    row = torch.zeros(1, 1, 8)
    with pytest.raises(IndexError):
        write_kv(row, row, cache, torch.tensor([slot]))
