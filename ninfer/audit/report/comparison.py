"""The comparison of two sets of responses as one HTML page."""

from ninfer.audit.compare import Comparison
from ninfer.audit.gains import COLUMNS
from ninfer.audit.report.page import GAIN_NOTE, document, section, table
from ninfer.audit.report.plots import pairs_plot
from ninfer.audit.summary import origins


def comparison_page(comparison: Comparison) -> str:
    """Gains by group, and the rates of pairs over each other."""
    first, second = comparison.first, comparison.second
    rows = [gain.cells() for gain in comparison.gains]
    plot = pairs_plot(comparison.pairs, first, second)
    who = [
        *(f"{first}: {line}" for line in origins(old for old, _ in comparison.pairs)),
        *(f"{second}: {line}" for line in origins(new for _, new in comparison.pairs)),
    ]
    sections = [
        section("Gains", table(COLUMNS, rows, f"By {comparison.by}"), GAIN_NOTE),
        section("Pairs", f'<div class="plots">{plot}</div>') if plot else "",
    ]
    return document(f"{second} against {first}", comparison.sentence, who, sections)
