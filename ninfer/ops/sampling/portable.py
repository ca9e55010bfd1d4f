"""Sampling by Triton kernels: nothing waits for the device, nothing depends on other rows.

`candidates` has no kernel: how wide its result is depends on the numbers, and no round asks for it.
"""

from typing import Final

import torch
import triton
from torch import Tensor

from ninfer.errors import UnsupportedError
from ninfer.ops.launch import launch
from ninfer.ops.sampling.five_launches import BLOCK, EXACT, Rules, Settings, drawn
from ninfer.ops.sampling.kernels import best as best_kernels
from ninfer.ops.sampling.kernels import rows as row_kernels
from ninfer.ops.tensors import (
    AllowedTokens,
    Candidates,
    DrawSettings,
    TokenBias,
    TokenPenalties,
)

FLOATS: Final = (torch.bfloat16, torch.float16, torch.float32)
_LIST: Final = 1024
_READ: Final = 64
_PAIRS: Final = 256
_ENTRIES: Final = 4096


def penalise(
    logits: Tensor,
    counts: Tensor,
    presence: Tensor,
    frequency: Tensor,
    repetition: Tensor | None = None,
) -> Tensor:
    """See the contract."""
    out = _like("penalise", logits)
    counts = counts if counts.stride(-1) == 1 else counts.contiguous()
    if out.numel():
        launch(
            row_kernels.penalise_rows,
            _grid(logits),
            *(logits, logits.stride(0), counts, counts.stride(0)),
            *(presence.contiguous(), frequency.contiguous()),
            None if repetition is None else repetition.contiguous(),
            *(out, out.shape[1]),
            HAS_REPETITION=repetition is not None,
            BLOCK=BLOCK,
            **EXACT,
        )
    return out


def add_bias(logits: Tensor, rows: Tensor, ids: Tensor, values: Tensor) -> Tensor:
    """See the contract."""
    out = _like("add_bias", logits)
    if out.numel():
        values_of_rows = (logits, logits.stride(0), out, out.shape[1])
        launch(row_kernels.copy_rows, _grid(logits), *values_of_rows, BLOCK=BLOCK)
    if pairs := ids.shape[0]:
        launch(
            row_kernels.add_pairs,
            (-(-pairs // _PAIRS),),
            *(rows.contiguous(), ids.contiguous(), values, out, pairs, out.shape[1]),
            BLOCK=_PAIRS,
        )
    return out


def mask(logits: Tensor, allowed: Tensor) -> Tensor:
    """See the contract."""
    _check("mask", logits)
    # The interpreter cuts float32 down to bf16; here the values are bf16 already.
    out = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    allowed = allowed if allowed.stride(-1) == 1 else allowed.contiguous()
    if out.numel():
        launch(
            row_kernels.mask_rows,
            _grid(logits),
            *(logits, logits.stride(0), allowed, allowed.stride(0)),
            *(out, out.shape[1], allowed.shape[1]),
            BLOCK=BLOCK,
        )
    return out


def finite_rows(logits: Tensor, limit: int) -> Tensor:
    """See the contract."""
    return best_of("finite_rows", logits, limit, 1, mark=True)[1][:, 0] >= 0


def argmax(logits: Tensor, limit: int) -> Tensor:
    """See the contract."""
    return best_of("argmax", logits, limit, 1, mark=True)[1][:, 0]


def best_of(
    op: str,
    logits: Tensor,
    limit: int,
    count: int,
    *,
    ids: Tensor | None = None,
    mark: bool,
) -> tuple[Tensor, Tensor]:
    """(values, ids) of the best `count` of the first `limit` columns, best first, lower id first.

    With `mark` a row that `finite_rows` refuses gives NaN and -1; without it NaN counts as -inf.
    Shapes: logits [R, V], ids [limit] int64 or None -> [R, count] float32 and int64.
    """
    _check(op, logits)
    rows, device = logits.shape[0], logits.device
    values = torch.empty((rows, count), dtype=torch.float32, device=device)
    found = torch.empty((rows, count), dtype=torch.int64, device=device)
    if not found.numel():
        return values, found
    blocks = -(-limit // BLOCK)
    part_values = torch.empty((rows, blocks, count), dtype=torch.float32, device=device)
    part_ids = torch.empty((rows, blocks, count), dtype=torch.int64, device=device)
    launch(
        best_kernels.best_of_blocks,
        (blocks, rows),
        *(logits, logits.stride(0), limit, ids, count, part_values, part_ids),
        HAS_IDS=ids is not None,
        NAN=1 if mark else -1,
        BLOCK=BLOCK,
    )
    entries = blocks * count
    size = min(triton.next_power_of_2(entries), _ENTRIES)
    launch(
        best_kernels.best_of_rows,
        (rows,),
        *(part_values, part_ids, entries, count, values, found),
        MARK=mark,
        ENTRIES=size,
        IS_WHOLE=entries <= size,
        num_warps=4 if size <= 1024 else 8,
    )
    return values, found


def draw(choice: Candidates, u: Tensor) -> Tensor:
    """See the contract."""
    rows, width = choice.ids.shape
    out = torch.empty(rows, dtype=torch.int64, device=u.device)
    if rows:
        values = (choice.ids.contiguous(), choice.weights.contiguous(), u.contiguous(), out, width)
        size = min(triton.next_power_of_2(width), _LIST)
        launch(row_kernels.draw_rows, (rows,), *values, BLOCK=size)
    return out


def sample(
    logits: Tensor,
    *,
    limit: int,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    u: Tensor,
) -> Tensor:
    """See the contract."""
    _check("sample", logits)
    given = (temperature, top_k, top_p, min_p, u)
    heat, keep, nucleus, floor, place = (x.to(logits.device).contiguous() for x in given)
    settings = Settings(heat, keep, nucleus, floor, u=place)
    return drawn("sample", logits, limit, settings)


def next_tokens(
    logits: Tensor,
    draws: DrawSettings,
    *,
    limit: int,
    bias: TokenBias | None = None,
    penalties: TokenPenalties | None = None,
    allowed: AllowedTokens | None = None,
) -> Tensor:
    """See the contract."""
    _check("next_tokens", logits)
    given = (draws.temperature, draws.top_k, draws.top_p, draws.min_p)
    heat, keep, nucleus, floor = (x.contiguous() for x in given)
    places = (draws.seeds, draws.positions, draws.purposes)
    seeds, positions, purposes = (x.contiguous() for x in places)
    settings = Settings(heat, keep, nucleus, floor, None, seeds, positions, purposes)
    return drawn("next_tokens", logits, limit, settings, Rules(bias, penalties, allowed))


def uniforms(seeds: Tensor, positions: Tensor, purposes: Tensor) -> Tensor:
    """See the contract."""
    out = torch.empty(seeds.shape, dtype=torch.float32, device=seeds.device)
    if count := seeds.shape[0]:
        values = (seeds.contiguous(), positions.contiguous(), purposes.contiguous(), out, count)
        grid = (-(-count // _PAIRS),)
        launch(row_kernels.draw_numbers, grid, *values, BLOCK=_PAIRS, num_warps=4)
    return out


def logprobs(logits: Tensor, ids: Tensor, limit: int) -> Tensor:
    """See the contract."""
    _check("logprobs", logits)
    rows, count = ids.shape
    out = torch.empty((rows, count), dtype=torch.float32, device=logits.device)
    if not out.numel():
        return out
    blocks = -(-limit // BLOCK)
    tops = torch.empty((rows, blocks), dtype=torch.float32, device=logits.device)
    masses = torch.empty_like(tops)
    values = (logits, logits.stride(0), limit, tops, masses)
    launch(row_kernels.masses_of_blocks, (blocks, rows), *values, BLOCK=BLOCK, num_warps=8)
    ids = ids if ids.stride(-1) == 1 else ids.contiguous()
    launch(
        row_kernels.read_logprobs,
        (-(-count // _READ), rows),
        *(logits, logits.stride(0), ids, ids.stride(0), tops, masses, blocks, out, count),
        BLOCKS=triton.next_power_of_2(blocks),
        READ=_READ,
    )
    return out


def top_logprobs(logits: Tensor, limit: int, n: int) -> tuple[Tensor, Tensor]:
    """See the contract."""
    _, ids = best_of("top_logprobs", logits, limit, n, mark=True)
    return ids, logprobs(logits, ids, limit)


def _grid(logits: Tensor) -> tuple[int, int]:
    return -(-logits.shape[1] // BLOCK), logits.shape[0]


def _like(op: str, logits: Tensor) -> Tensor:
    _check(op, logits)
    return torch.empty(logits.shape, dtype=torch.float32, device=logits.device)


def _check(op: str, logits: Tensor) -> None:
    if logits.dtype not in FLOATS:
        raise UnsupportedError(f"{op}: no Triton kernel for logits of {logits.dtype}; use bf16")
