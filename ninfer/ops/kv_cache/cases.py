"""Input cases of KV cache writes and reads."""

from functools import partial
from typing import Final

from ninfer.ops.case import Call, Case, Inputs
from ninfer.ops.kv_cache import read_kv, write_kv

_FORMATS: Final = ("bf16", "fp32", "int8", "fp8", "int4")


def _write(form: str, count: int, heads: int, dim: int, page_size: int, inputs: Inputs) -> Call:
    cache = inputs.cache(form, 3, heads, dim, page_size)
    arguments = {
        "keys": inputs.normal(count, heads, dim, scale=3.0),
        "values": inputs.normal(count, heads, dim),
        "cache": cache,
        "slots": inputs.shuffled(3 * page_size)[:count],
    }
    return Call(arguments, changed=("cache",))


def _read(form: str, inputs: Inputs) -> Call:
    cache = inputs.cache(form, 3, 2, 256)
    return Call({"cache": cache, "slots": inputs.integers(0, 3 * 64, 70)})


CASES: Final = (
    *(
        Case(
            write_kv, f"{form}_{count}x{heads}x{dim}", partial(_write, form, count, heads, dim, 64)
        )
        for form in _FORMATS
        for count, heads, dim in ((1, 4, 256), (65, 2, 128), (0, 1, 64))
    ),
    # A head that is no multiple of the scale group, on small pages.
    Case(write_kv, "int8_short_group", partial(_write, "int8", 9, 3, 80, 4)),
    Case(write_kv, "int4_short_group", partial(_write, "int4", 9, 3, 80, 4)),
    Case(write_kv, "fp8_two_groups", partial(_write, "fp8", 5, 2, 320, 4)),
    *(Case(read_kv, form, partial(_read, form)) for form in _FORMATS),
)
