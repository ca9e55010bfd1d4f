"""The tables of an audit as Markdown, and every response that cannot be used by name."""

from collections.abc import Iterator, Sequence

from ninfer.audit.gains import COLUMNS as GAIN_COLUMNS
from ninfer.audit.summary import Audit, origins
from ninfer.audit.tables import COLUMNS, PROBLEM_COLUMNS, problem_rows


def markdown_of(audit: Audit) -> str:
    """A part of a document: the verdict in a sentence, who wrote, tables with their headings."""
    return "\n".join(_lines(audit)) + "\n"


def _lines(audit: Audit) -> Iterator[str]:
    endings = ", ".join(f"{count} {word}" for word, count in audit.endings.items())
    yield f"{_text(audit.sentence)}. Endings: {endings}."
    yield ""
    yield from (f"- {_text(line)}" for line in origins(audit.verdicts))
    yield from _table(f"By {audit.by}", COLUMNS, [row.cells() for row in audit.rows])
    if audit.mode_rows:
        rows = [row.cells() for row in audit.mode_rows]
        yield from _table("By mode", ("mode", *COLUMNS[1:]), rows)
    if audit.gains:
        yield from _table("Gains", GAIN_COLUMNS, [gain.cells() for gain in audit.gains])
    problems = problem_rows(audit.verdicts)
    if problems:
        yield from _table("Not usable", PROBLEM_COLUMNS, problems)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield from ("", f"## {title}", "")
    yield _row(columns)
    yield _row(["---", *["---:"] * (len(columns) - 1)])
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_text, cells))} |"


def _text(text: str) -> str:
    """Text of a model as plain text: no markup, no end of a cell or line."""
    kept = "".join(c if c.isprintable() else " " for c in text)
    for mark in ("\\", "`", "*", "_", "<", "[", "|"):
        kept = kept.replace(mark, "\\" + mark) if mark != "<" else kept.replace("<", "&lt;")
    return kept
