"""The page of measured kernel rates, from the reports under bench/results."""

from pathlib import Path

from ninfer.bench import Report, Row
from tools.markdown import page, table

# Reports of kernels; those of processors and files have no page.
REPORTS = ("ops",)


def performance(root: Path) -> str | None:
    """docs/performance.md; None before a card's report has been kept."""
    body: list[str] = []
    for name in REPORTS:
        path = root / "bench" / "results" / f"{name}.json"
        if path.exists():
            body += _section(Report.from_json(path.read_text(encoding="utf-8")))
    intro = (
        "Kernels, each checked against float64 in the run that timed it. Weights are random "
        "numbers and no text is computed. Values are medians, with the extremes of the repeats. "
        "`ninfer bench ops --json bench/results/ops.json` measures them again."
    )
    return page("Performance", intro, body) if body else None


def _section(report: Report) -> list[str]:
    machine = report.machine
    where = (
        f"{machine.device}, torch {machine.torch}, Python {machine.python}, "
        f"revision {machine.revision}, {report.date[:10]}"
    )
    head = ["what", "shape", "value", "extremes", "of"]
    failed = [f"- check failed, no figure: {text}" for text in report.failures]
    lines = [f"## {report.benchmark} on {where}", "", f"{report.note}.", ""]
    return [*lines, *table(head, map(_cells, report.rows)), "", *failed]


def _cells(row: Row) -> tuple[str, ...]:
    shape = " ".join(f"{name}={value}" for name, value in row.shape.items())
    share = f"{row.share:.0%}" if "/" in row.unit else f"{row.share:.2f}x"
    extremes = f"{row.low:.4g}..{row.high:.4g}"
    value = f"{row.value:.4g} {row.unit}"
    return row.name, shape, value, extremes, f"{share} of {row.reference_name}"
