"""Rows of variants, each beside the first one of its shape and number of tokens."""

from collections.abc import Iterable, Mapping

from ninfer.bench.report import Findings, Row, time_row
from ninfer.bench.timer import Timing

# Shape, variant, time by number of tokens or None, and why there is none.
Answer = tuple[str, str, Mapping[int, Timing] | None, str]


def variant_rows(answers: Iterable[Answer], note: str = "") -> Findings:
    """All of them by shape and tokens; a variant without a result is among the failures."""
    rows: list[Row] = []
    failures: list[str] = []
    first: dict[tuple[str, int], Timing] = {}
    for name, variant, timings, why in answers:
        if timings is None:
            failures.append(f"{name} {variant}: {why}")
            continue
        for count, timing in timings.items():
            table = first.setdefault((name, count), timing)
            shape: dict[str, int | str] = {"T": count, "variant": variant}
            rows.append(time_row(name, shape, timing, ("table", table.median), unit="us"))
    rows.sort(key=lambda row: (row.name, int(row.shape["T"])))
    return Findings(rows, note, tuple(failures))
