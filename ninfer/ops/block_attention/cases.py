"""Input cases of block attention."""

from functools import partial
from typing import Final

from ninfer.ops.block_attention import block_attention
from ninfer.ops.case import Call, Case, Inputs


def _block(
    new: tuple[int, ...],
    context: tuple[int, ...],
    heads: tuple[int, int],
    dim: int,
    form: str,
    page_size: int,
    window: int | None,
    inputs: Inputs,
) -> Call:
    rows = inputs.ragged(new, context, page_size)
    pages = sum(-(-(n + c) // page_size) for n, c in zip(new, context, strict=True)) + 1
    arguments = {
        "q": inputs.normal(sum(new), heads[0], dim),
        "keys": inputs.normal(sum(new), heads[1], dim),
        "values": inputs.normal(sum(new), heads[1], dim),
        "cache": inputs.cache(form, pages, heads[1], dim, page_size),
        "rows": rows,
        "window": window,
        "scale": dim**-0.5,
    }
    return Call(arguments)


CASES: Final = (
    Case(block_attention, "no_context", partial(_block, (8,), (0,), (2, 1), 64, "fp32", 64, None)),
    Case(
        block_attention,
        "full_gqa4",
        partial(_block, (8, 16), (130, 64), (32, 8), 128, "bf16", 64, None),
    ),
    Case(
        block_attention,
        "window_in_context",
        partial(_block, (8, 2), (300, 20), (4, 2), 128, "bf16", 64, 100),
    ),
    Case(
        block_attention, "window_border", partial(_block, (4,), (64,), (2, 2), 32, "fp32", 64, 65)
    ),
    Case(
        block_attention,
        "window_in_block",
        partial(_block, (16,), (70,), (2, 1), 32, "fp32", 64, 3),
    ),
    Case(block_attention, "itself_only", partial(_block, (3,), (5,), (2, 1), 16, "fp32", 4, 1)),
    Case(
        block_attention,
        "ragged_int8",
        partial(_block, (1, 0, 5, 16), (63, 9, 0, 190), (6, 2), 64, "int8", 64, 128),
    ),
    Case(block_attention, "no_rows", partial(_block, (0,), (3,), (2, 1), 16, "fp32", 4, None)),
)
