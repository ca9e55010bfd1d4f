"""Input cases of paged attention."""

from functools import partial
from typing import Final

from ninfer.ops.attention import paged_attention
from ninfer.ops.case import Call, Case, Inputs


def _attention(
    new: tuple[int, ...],
    cached: tuple[int, ...],
    heads: tuple[int, int],
    dim: int,
    form: str,
    page_size: int,
    inputs: Inputs,
) -> Call:
    rows = inputs.ragged(new, cached, page_size)
    pages = sum(-(-(n + c) // page_size) for n, c in zip(new, cached, strict=True)) + 1
    arguments = {
        "q": inputs.normal(sum(new), heads[0], dim),
        "cache": inputs.cache(form, pages, heads[1], dim, page_size),
        "rows": rows,
        "scale": dim**-0.5,
    }
    return Call(arguments)


CASES: Final = (
    Case(paged_attention, "first_token", partial(_attention, (1,), (0,), (2, 1), 64, "fp32", 64)),
    Case(
        paged_attention,
        "decode_gqa6",
        partial(_attention, (1, 1, 1), (0, 63, 64), (24, 4), 256, "bf16", 64),
    ),
    Case(
        paged_attention,
        "decode_gqa8_int8",
        partial(_attention, (1, 1), (127, 200), (16, 2), 256, "int8", 64),
    ),
    Case(paged_attention, "prefill", partial(_attention, (130,), (0,), (4, 2), 128, "bf16", 64)),
    Case(
        paged_attention,
        "ragged",
        partial(_attention, (3, 0, 65, 1), (61, 5, 0, 190), (6, 2), 32, "fp32", 64),
    ),
    Case(paged_attention, "int4", partial(_attention, (1, 3), (127, 60), (8, 2), 64, "int4", 64)),
    Case(paged_attention, "verify", partial(_attention, (4, 4), (60, 125), (4, 4), 64, "int8", 64)),
    Case(
        paged_attention, "small_pages", partial(_attention, (7, 2), (5, 9), (4, 1), 16, "bf16", 4)
    ),
    Case(paged_attention, "no_rows", partial(_attention, (0,), (3,), (2, 1), 16, "fp32", 4)),
)
