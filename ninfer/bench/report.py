"""One schema for benchmark results: rows with a baseline, a JSON form, a table, a comparison."""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Self

from ninfer.bench.machine import Machine
from ninfer.bench.timer import Timing
from ninfer.errors import UsageError

SCHEMA: Final = 1
_PER_SECOND: Final = {"ms": 1e3, "us": 1e6}


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure beside what it is to be judged by.

    `value` is the median, `low` and `high` the extremes of the repeats, all in `unit`. `reference`
    is the figure to compare with in the same unit, measured on the same machine in the same run;
    `reference_name` says what it is: a roof, or a baseline.
    """

    name: str
    shape: Mapping[str, int | str]
    unit: str
    value: float
    low: float
    high: float
    repeats: int
    reference_name: str
    reference: float

    @property
    def share(self) -> float:
        """Value as a share of the reference."""
        return self.value / self.reference

    @property
    def key(self) -> str:
        """What two reports match rows by."""
        return f"{self.name} {shape_text(self.shape)} [{self.unit}]"


def rate_row(
    name: str,
    shape: Mapping[str, int | str],
    unit: str,
    amount: float,
    timing: Timing,
    reference: tuple[str, float],
) -> Row:
    """A row whose figure is `amount` per second, from the times that the amount took."""
    return Row(
        name=name,
        shape=shape,
        unit=unit,
        value=amount / timing.median,
        low=amount / timing.slowest,
        high=amount / timing.fastest,
        repeats=timing.repeats,
        reference_name=reference[0],
        reference=reference[1],
    )


def time_row(
    name: str,
    shape: Mapping[str, int | str],
    timing: Timing,
    reference: tuple[str, float],
    unit: str = "ms",
) -> Row:
    """A row of milliseconds or microseconds; the reference is in seconds, as timings are."""
    scale = _PER_SECOND[unit]
    return Row(
        name=name,
        shape=shape,
        unit=unit,
        value=timing.median * scale,
        low=timing.fastest * scale,
        high=timing.slowest * scale,
        repeats=timing.repeats,
        reference_name=reference[0],
        reference=reference[1] * scale,
    )


@dataclass(frozen=True, slots=True)
class Findings:
    """What a benchmark gives: rows, what has to stand beside them, and parts that failed a check.

    A failed part has no row.
    """

    rows: Sequence[Row]
    note: str = ""
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The rows of one benchmark and where and when they were measured."""

    benchmark: str
    date: str
    machine: Machine
    rows: tuple[Row, ...]
    note: str = ""
    failures: tuple[str, ...] = ()

    @classmethod
    def now(cls, benchmark: str, machine: Machine, found: Sequence[Row] | Findings) -> Self:
        """A report dated with the present second, in UTC; plain rows are findings without notes."""
        if not isinstance(found, Findings):
            found = Findings(found)
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return cls(benchmark, date, machine, tuple(found.rows), found.note, found.failures)

    def to_json(self) -> str:
        """The JSON form, one object."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the JSON form. Raises UsageError when it is another schema or incomplete."""
        try:
            values = json.loads(text)
        except ValueError as error:
            raise UsageError(f"benchmark report: not JSON: {error}") from error
        if not isinstance(values, dict) or values.get("schema") != SCHEMA:
            raise UsageError(f"benchmark report: not an object of schema {SCHEMA}")
        rows = values.get("rows")
        if not isinstance(rows, list):
            raise UsageError("benchmark report: rows must be an array")
        return cls(
            benchmark=str(values.get("benchmark")),
            date=str(values.get("date")),
            machine=_read(Machine, values.get("machine")),
            rows=tuple(_read(Row, row) for row in rows),
            note=str(values.get("note", "")),
            failures=tuple(map(str, values.get("failures", ()))),
        )

    def lines(self) -> list[str]:
        """A plain-text table, headed by what it was measured on."""
        machine = self.machine
        head = (
            f"{self.benchmark}: {machine.device}, {machine.threads} of {machine.cores} cores, "
            f"torch {machine.torch}, ninfer {machine.ninfer} ({machine.revision}), {self.date}"
        )
        cells = [("what", "shape", "value", "unit", "share", "of"), *map(_cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        table = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
        note = [self.note] if self.note else []
        return [head, *note, *table, *(f"CHECK FAILED: {text}" for text in self.failures)]


def _read(kind: type[Any], values: Any) -> Any:
    """A dataclass from a JSON object with exactly its fields. Raises UsageError."""
    names = {field.name for field in fields(kind)}
    if not isinstance(values, dict) or set(values) != names:
        found = sorted(values) if isinstance(values, dict) else values
        raise UsageError(
            f"benchmark report: {kind.__name__} must have {sorted(names)}, has {found}"
        )
    return kind(**values)


def _cells(row: Row) -> tuple[str, ...]:
    # A time longer than its reference is worse, so it must not read like a share reached.
    share = f"{row.share:.1f}x" if row.unit in _PER_SECOND else f"{row.share:.1%}"
    return row.name, shape_text(row.shape), f"{row.value:.4g}", row.unit, share, row.reference_name


def shape_text(shape: Mapping[str, int | str]) -> str:
    """`rows=2048 columns=5120`."""
    return " ".join(f"{name}={value}" for name, value in shape.items())


def check_comparable(before: Report, benchmark: str, machine: Machine) -> None:
    """Refuse a report that a new one of this benchmark and machine cannot be compared with.

    A ratio would then say nothing of the code. Raises UsageError naming both values.
    """
    pairs = (
        ("benchmarks", before.benchmark, benchmark),
        ("devices", before.machine.device, machine.device),
        ("CPU threads (set OMP_NUM_THREADS)", before.machine.threads, machine.threads),
    )
    for what, old, new in pairs:
        if old != new:
            raise UsageError(f"reports of different {what}: {old} then, {new} now")


def compare(before: Report, after: Report) -> list[str]:
    """Lines that give new over old for each row that both reports have.

    Raises UsageError when the two are not of one benchmark and machine.
    """
    check_comparable(before, after.benchmark, after.machine)
    old = {row.key: row for row in before.rows}
    return [
        f"{row.key}: {old[row.key].value:.4g} -> {row.value:.4g} "
        f"({row.value / old[row.key].value:.3f})"
        for row in after.rows
        if row.key in old
    ]
