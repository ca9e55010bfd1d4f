"""The plots of an audit: what each shows, and the figure that holds it."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from ninfer.audit.record import StoredResponse
from ninfer.audit.repetition import Loop
from ninfer.audit.report.svg import Plot, Point, axis, percent, plain, thinned
from ninfer.audit.tables import GroupRow, group_row, name_of
from ninfer.audit.verdict import Verdict

_MODES: Final = ("one", "two", "three", "four", "five", "six")
# Time lines of so many looping responses.
_TIME_LINES: Final = 4


def figure(plot: Plot, legend: Sequence[tuple[str, str]], note: str) -> str:
    """A figure element; `legend` are pairs of mark and meaning."""
    keys = "".join(
        f'<span><i class="key {escape(mark)}" aria-hidden="true"></i>{escape(text)}</span>'
        for mark, text in legend
    )
    return (
        f"<figure><figcaption><h3>{escape(plot.title)}</h3><p>{escape(note)}</p>"
        f'<p class="legend">{keys}</p></figcaption>{plot.draw()}</figure>'
    )


def speed_and_usability(verdicts: Sequence[Verdict]) -> str:
    """Speed of each fixture and mode over the share of usable responses; "" without rates."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        response = verdict.response
        groups.setdefault((response.mode, response.fixture), []).append(verdict)
    rows = [(mode, group_row(fixture, found)) for (mode, fixture), found in groups.items()]
    known = [(mode, row) for mode, row in rows if row.rate is not None]
    if not known:
        return ""
    modes = list(dict.fromkeys(mode for mode, _ in known))
    plot = Plot(
        "Speed against usability, by fixture",
        _spoken(known),
        axis("usable responses", (), percent, top=1.0),
        axis("decode tok/s, mean over all", (row.rate.mean for _, row in known if row.rate), plain),
    )
    marks = {mode: _MODES[n % len(_MODES)] for n, mode in enumerate(modes)}
    plot.points(thinned([_fixture_point(mode, row, marks[mode]) for mode, row in known]))
    legend = [(marks[mode], mode or "all") for mode in modes]
    legend.append(("cross bad", "half or more of its responses are loops"))
    return figure(
        plot, legend, "Fast and to the left is fast nonsense: only points on the right count."
    )


def _fixture_point(mode: str, row: GroupRow, mark: str) -> Point:
    assert row.rate is not None
    looping = 2 * row.loops >= row.responses
    text = (
        f"{row.name} {mode}: {row.rate} tok/s, {row.usable} of {row.responses} usable, "
        f"{row.loops} loops"
    )
    return Point(row.usable / row.responses, row.rate.mean, "cross bad" if looping else mark, text)


def _spoken(rows: Sequence[tuple[str, GroupRow]]) -> str:
    worst = min(rows, key=lambda pair: pair[1].usable / pair[1].responses)[1]
    return (
        f"{len(rows)} fixtures and modes; the least usable is {worst.name} with {worst.usable} of "
        f"{worst.responses} responses. The table of groups has the numbers."
    )


def acceptance_and_repetition(verdicts: Sequence[Verdict]) -> str:
    """Acceptance of drafts over the share of text that was said before; "" without drafts."""
    points = []
    for verdict in verdicts:
        drafts = verdict.response.drafts
        if drafts is None or drafts.acceptance is None:
            continue
        loop = verdict.repetition.is_loop
        mark = "cross bad" if loop else "one" if verdict.usable else "square two"
        text = f"{name_of(verdict)}: {drafts.acceptance:.0%} accepted, {verdict.word}"
        points.append(Point(verdict.repetition.said, drafts.acceptance, mark, text))
    if not points:
        return ""
    loops = sum("bad" in point.mark for point in points)
    plot = Plot(
        "Acceptance against repetition, by response",
        f"{len(points)} responses with drafts, {loops} of them loops",
        axis("text that was said before", (), percent, top=1.0),
        axis("drafts accepted", (), percent, top=1.0),
    )
    plot.points(thinned(points))
    legend = [("one", "usable"), ("square two", "not usable"), ("cross bad", "loop")]
    return figure(plot, legend, "Drafts of a loop are always right: that is no merit of theirs.")


def modes_on_seeds(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """For each mode but the first: its rates over those of the first, on the same seeds."""
    modes: dict[str, dict[tuple[object, ...], Verdict]] = {}
    for verdict in verdicts:
        response = verdict.response
        place = (*response.key[:-1], response.origin.model)
        modes.setdefault(response.mode, {})[place] = verdict
    first, *others = modes
    for other in others:
        pairs = [(old, new) for k, old in modes[first].items() if (new := modes[other].get(k))]
        plot = pairs_plot(pairs, first or "first", other or "second")
        if plot:
            yield plot


def pairs_plot(pairs: Sequence[tuple[Verdict, Verdict]], first: str, second: str) -> str:
    """Rates of pairs with the same question, seed and sampling; "" without rates."""
    points = []
    for old, new in pairs:
        before, after = old.response.decode_rate, new.response.decode_rate
        if before is None or after is None:
            continue
        both = old.usable and new.usable
        mark = "one" if both else "cross bad"
        words = f"{first} {old.word}, {second} {new.word}"
        text = f"{name_of(old)}: {before:.1f} and {after:.1f} tok/s; {words}"
        points.append(Point(before, after, mark, text))
    if not points:
        return ""
    largest = max(max(point.x, point.y) for point in points)
    plot = Plot(
        f"{second} against {first}, same seeds",
        f"{len(points)} pairs, {sum(p.y > p.x for p in points)} of them faster with {second}",
        axis(f"{first}, decode tok/s", (largest,), plain),
        axis(f"{second}, decode tok/s", (largest,), plain),
    )
    plot.line([(0, 0), (largest, largest)], "even")
    plot.points(thinned(points))
    legend = [("one", "both usable"), ("cross bad", "not both usable: left out of the gain")]
    return figure(plot, legend, f"Points above the line are faster with {second}.")


def time_lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Text over time of some responses that loop, the loop marked."""
    shown = 0
    for verdict in verdicts:
        response, loops = verdict.response, verdict.repetition.loops
        placed = [loop for loop in loops if loop.first is not None]
        if not placed or len(response.pieces) < 2:
            continue
        yield _time_line(verdict, placed)
        shown += 1
        if shown == _TIME_LINES:
            return


def _time_line(verdict: Verdict, loops: Sequence[Loop]) -> str:
    response = verdict.response
    places = [(seconds, float(count)) for seconds, count in response.pieces]
    plot = Plot(
        f"Time line: {name_of(verdict)}",
        "; ".join(map(str, loops)),
        axis("seconds", (places[-1][0],), plain),
        axis("characters", (places[-1][1],), plain),
    )
    for loop in loops:
        assert loop.first is not None and loop.last is not None
        before = len(response.reasoning) if loop.channel == "text" else 0
        low, high = (_time_of(response, before + place) for place in (loop.first, loop.last))
        plot.band(low, high, "loop", str(loop))
    plot.line([(0.0, 0.0), *places], "written")
    share = max(loop.share for loop in loops)
    legend = [("written", "characters written"), ("loop", "loop")]
    return figure(plot, legend, f"{share:.0%} of it is a loop of {loops[0].excerpt[:80]!r}")


def _time_of(response: StoredResponse, characters: int) -> float:
    """Seconds until so many characters were written, by the points of the time line."""
    before, count_before = 0.0, 0
    for seconds, count in response.pieces:
        if count >= characters:
            span = count - count_before
            return before + (seconds - before) * (characters - count_before) / max(span, 1)
        before, count_before = seconds, count
    return before
