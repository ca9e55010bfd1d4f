"""Splits of the streaming product beside the table's: which one should a width have here."""

from typing import Final

import torch

from ninfer.bench import linear_case
from ninfer.bench.ops import product_rows, roofs
from ninfer.bench.report import Findings, Row
from ninfer.errors import FormatError, UnsupportedError
from ninfer.ops.linear.fast_plan import Split

_TOKENS: Final = (1, 8, 16)
# Format, rows, columns, and splits that cover these columns; the table's first.
CASES: Final = (
    ("Q4", 34816, 5120, (Split(20, 2, 2), Split(10, 4, 2), Split(8, 5, 2), Split(10, 2, 4))),
    ("Q5", 34816, 5120, (Split(20, 2, 2), Split(10, 4, 2), Split(10, 2, 4))),
    ("Q5", 5120, 17408, (Split(17, 2, 8), Split(17, 1, 16))),
    ("Q5", 5120, 6144, (Split(16, 3, 2), Split(12, 4, 2), Split(16, 2, 3), Split(12, 2, 4))),
    ("W8", 12288, 2048, (Split(16, 2, 1), Split(16, 1, 2), Split(8, 2, 2), Split(8, 4, 1))),
)


def run() -> Findings:
    """Each split checked, then timed for 1, 8 and 16 tokens.

    Raises UnsupportedError without a card.
    """
    if not torch.cuda.is_available():
        raise UnsupportedError("bench ops-splits: torch sees no NVIDIA GPU")
    device = torch.device("cuda", torch.cuda.current_device())
    rows: list[Row] = roofs(device)
    read = rows[0].value
    failures: list[str] = []
    for form, height, width, splits in CASES:
        for split in splits:
            try:
                case = linear_case.product(form, height, width, device, split)
                rows += product_rows(case, _TOKENS, read)
            except (FormatError, UnsupportedError) as error:
                failures.append(f"{split}: {error}")
    return Findings(rows, "random weights, no text", tuple(failures))
