"""The page: verdict, tables, plots, and the responses that cannot be used with their evidence."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import chain
from typing import Final

from ninfer.audit.gains import COLUMNS as GAIN_COLUMNS
from ninfer.audit.report import plots
from ninfer.audit.report.style import CSS
from ninfer.audit.summary import Audit, origins
from ninfer.audit.tables import COLUMNS, name_of, rate_text
from ninfer.audit.verdict import Verdict

# Unusable responses of one kind with their texts, those that are shown unfolded, and characters of
# each text from its start and its end.
_SHOWN: Final = 60
_OPEN: Final = 12
_EXCERPT: Final = 700
_REASONS: Final = 400
# Nothing may be loaded or run, whatever a text of a model says.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def page_of(audit: Audit, title: str = "Audit of stored responses") -> str:
    """The report as HTML: no script, nothing from elsewhere, texts cut so that it stays small."""
    return document(title, audit.sentence, origins(audit.verdicts), _sections(audit))


def document(title: str, verdict: str, origin: Sequence[str], sections: Iterable[str]) -> str:
    """A whole page of sections."""
    who = "".join(f'<p class="soft">{escape(line)}</p>' for line in origin[:12])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>\n<body><main>\n"
        f'<h1>{escape(title)}</h1>\n<p class="verdict">{escape(verdict)}</p>\n{who}\n'
        + "\n".join(filter(None, sections))
        + "\n</main></body></html>\n"
    )


def _sections(audit: Audit) -> Iterable[str]:
    rows = [row.cells() for row in audit.rows]
    endings = ", ".join(f"{count} {word}" for word, count in audit.endings.items())
    note = (
        f"Endings: {endings}. Rates are decode tokens per second, mean ± standard deviation; "
        "usable tokens per second of wall count the seconds of all responses."
    )
    yield section("What they were worth", table(COLUMNS, rows, f"By {audit.by}"), note)
    if audit.mode_rows:
        mode_rows = [row.cells() for row in audit.mode_rows]
        yield section("Modes", table(("mode", *COLUMNS[1:]), mode_rows, "By mode"))
    if audit.gains:
        gains = [gain.cells() for gain in audit.gains]
        yield section("Gains", table(GAIN_COLUMNS, gains, "Pairs of modes"), GAIN_NOTE)
    drawn = "".join(
        chain(
            (plots.speed_and_usability(audit.verdicts),),
            (plots.acceptance_and_repetition(audit.verdicts),),
            plots.modes_on_seeds(audit.verdicts),
            plots.time_lines(audit.verdicts),
        )
    )
    if drawn:
        yield section("Plots", f'<div class="plots">{drawn}</div>')
    yield _problems(audit.verdicts)


GAIN_NOTE: Final = (
    "Pairs have the same question, seed and sampling. tok/s is the geometric mean of second over "
    "first, over pairs of which both are usable; chance is that of so large a difference if there "
    "were none."
)


def section(title: str, body: str, note: str = "") -> str:
    """A section with a heading, and a note below it."""
    shown = f'<p class="soft">{escape(note)}</p>\n' if note else ""
    return f"<section><h2>{escape(title)}</h2>\n{shown}{body}</section>"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """A table that scrolls sideways; the first cell of a row is its heading."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _problems(verdicts: Sequence[Verdict]) -> str:
    """Unusable responses by the gravest word against them, at most _SHOWN of each."""
    groups: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if not verdict.usable:
            groups.setdefault(verdict.word, []).append(verdict)
    if not groups:
        return section("Not usable", '<p class="yes">None.</p>')
    return section("Not usable", "".join(map(_group, groups, groups.values())))


def _group(word: str, verdicts: Sequence[Verdict]) -> str:
    rest = len(verdicts) - _SHOWN
    more = f'<p class="soft">and {rest} more; --json has all of them</p>' if rest > 0 else ""
    opened = " open" if len(verdicts) <= _OPEN else ""
    shown = "".join(map(_problem, verdicts[:_SHOWN]))
    return (
        f'<details class="scroll"{opened}><summary><span class="no">{escape(word)}</span> '
        f"{len(verdicts)}</summary>{shown}{more}</details>"
    )


def _problem(verdict: Verdict) -> str:
    response = verdict.response
    reasons = "".join(f"<li>{escape(reason[:_REASONS])}</li>" for reason in verdict.reasons)
    evidence = escape(verdict.repetition.evidence)
    rate = rate_text(verdict)
    facts = f"{response.usage.completion or '?'} tokens, {rate} tok/s"
    command = f"<pre>{escape(response.command)}</pre>" if response.command else ""
    text = response.text if response.text.strip() else response.reasoning
    return (
        f'<details><summary><span class="no">{escape(verdict.word)}</span> '
        f'{escape(name_of(verdict))} <span class="soft">{escape(facts)}</span></summary>'
        f'<ul>{reasons}</ul><p class="soft">{evidence}</p>'
        f"<pre>{escape(_excerpt(text))}</pre>{command}</details>"
    )


def _excerpt(text: str) -> str:
    if len(text) <= 2 * _EXCERPT:
        return text
    left = len(text) - 2 * _EXCERPT
    return f"{text[:_EXCERPT]}\n[... {left} characters ...]\n{text[-_EXCERPT:]}"
