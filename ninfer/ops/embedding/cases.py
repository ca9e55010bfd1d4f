"""Input cases of the embedding lookup and of row replacement."""

from functools import partial
from typing import Final

import torch

from ninfer.ops.case import Call, Case, Inputs
from ninfer.ops.embedding import embed, scatter_rows

_FORMATS: Final = (
    "Q4G64_F16S",
    "Q5G64_F16S",
    "Q6G64_F16S",
    "W8G32_F16S",
    "FP8_E4M3FN_ROW_BF16S",
)


def _dense(count: int, inputs: Inputs) -> Call:
    table = inputs.weight("BF16", 300, 96)
    ids = inputs.integers(0, 300, count)
    return Call({"ids": ids, "table": table, "dtype": inputs.dtype})


def _packed(form: str, inputs: Inputs) -> Call:
    table = inputs.weight(form, 70, 200)
    ids = inputs.integers(0, 70, 33)
    ids[:3] = torch.tensor([0, 69, 0])
    return Call({"ids": ids, "table": table, "dtype": inputs.dtype})


def _scatter(count: int, rows: int, inputs: Inputs) -> Call:
    x, indices = inputs.normal(count, 40), inputs.shuffled(count)[:rows]
    return Call({"x": x, "indices": indices, "rows": inputs.normal(rows, 40)})


CASES: Final = (
    *(Case(embed, f"dense_{count}", partial(_dense, count)) for count in (0, 1, 65)),
    *(Case(embed, form.lower(), partial(_packed, form)) for form in _FORMATS),
    *(
        Case(scatter_rows, name, partial(_scatter, count, rows))
        for name, count, rows in (("some", 9, 4), ("all", 5, 5), ("none", 3, 0))
    ),
)
