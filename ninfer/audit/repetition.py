"""Repetition: equal lines, loops of tokens and lines, text that was said before; with evidence."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ninfer.audit.cycles import Cycle, Symbols, find_cycles, window_hashes
from ninfer.audit.record import StoredResponse
from ninfer.audit.text_tokens import TextTokens, tokens_of

_DIGITS: Final = re.compile(r"\d+")
# Tokens of a window that counts as said before when it comes again.
SAID: Final = 32
# Text of so many tokens, so much of it said before, is a loop in other words.
_SAID_TOKENS: Final = 1024
_SAID_SHARE: Final = 0.6
_EXCERPT: Final = 160


@dataclass(frozen=True, slots=True)
class Bounds:
    """From which size on a cycle is a loop, in symbols of one unit (docs/adr/0027).

    `shortest` where the text ends in it, `half` where it is half of the text, `long` anywhere.
    `block`: a period from which two copies are enough at the end.
    """

    unit: str
    shortest: int
    half: int
    long: int
    block: int

    def holds(self, cycle: Cycle, total: int) -> bool:
        """Whether a cycle of a text of `total` symbols is a loop."""
        at_end = total - cycle.end <= min(cycle.period, self.shortest // 4)
        if cycle.copies < 3:
            return at_end and cycle.period >= self.block
        is_half = cycle.length >= self.half and 2 * cycle.length >= total
        return at_end or is_half or cycle.length >= self.long


TOKENS: Final = Bounds("tokens", shortest=256, half=512, long=2048, block=256)
LINES: Final = Bounds("lines", shortest=24, half=48, long=400, block=40)


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: `period` symbols of `unit`, `copies` times, from symbol `start` of a channel on.

    `share` is of the channel's symbols. Characters `first` to `last` of the channel hold it; both
    are None for token ids, whose text is not known. `excerpt` is how its period begins.
    """

    channel: str
    unit: str
    period: int
    copies: float
    start: int
    length: int
    share: float
    first: int | None = None
    last: int | None = None
    excerpt: str = ""

    def __str__(self) -> str:
        unit = self.unit if self.period > 1 else self.unit.removesuffix("s")
        return (
            f"loop in the {self.channel}: {self.period} {unit}, {self.copies:.1f} times, from "
            f"{self.unit.removesuffix('s')} {self.start} on, {self.share:.0%} of it"
        )


@dataclass(frozen=True, slots=True)
class Repetition:
    """What repeats in a response. Lines are those that are not blank; counts are over all channels.

    `repeated` of `lines` stood before word for word, `near` of them but for their digits.
    `commonest` is the line that stands most often, `commonest_count` times. `said` is the share of
    windows of SAID tokens that stood before, `tokens` their number.
    """

    lines: int = 0
    repeated: int = 0
    near: int = 0
    commonest: str = ""
    commonest_count: int = 0
    tokens: int = 0
    said: float = 0.0
    loops: tuple[Loop, ...] = field(default_factory=tuple)

    @property
    def says_again(self) -> bool:
        """Whether most of a long text was said before, in whatever order."""
        return self.tokens >= _SAID_TOKENS and self.said > _SAID_SHARE

    @property
    def is_loop(self) -> bool:
        """Whether a rate of it means nothing."""
        return bool(self.loops) or self.says_again

    @property
    def evidence(self) -> str:
        """`x of y lines` in a sentence."""
        return (
            f"{self.repeated} of {self.lines} lines stood before ({self.near} but for numbers), "
            f"{self.said:.0%} of {self.tokens} tokens in windows said before"
        )


def repetition_of(response: StoredResponse) -> Repetition:
    """Look for repetition in reasoning and text, and in the ids where the text has no loop."""
    channels = [
        (n, t) for n, t in (("reasoning", response.reasoning), ("text", response.text)) if t
    ]
    loops: list[Loop] = []
    lines: list[str] = []
    cut: list[TextTokens] = []
    for name, text in channels:
        found, own_lines, tokens = _channel(name, text)
        loops += found
        lines += own_lines
        cut.append(tokens)
    ids = response.token_ids
    if ids and not loops:
        symbols = np.array(ids, dtype=np.int64)
        cycles = [c for c in find_cycles(symbols, TOKENS.shortest) if TOKENS.holds(c, len(ids))]
        loops += [_loop("token ids", TOKENS, cycle, len(ids)) for cycle in cycles]
    total = sum(map(len, cut))
    common = Counter(lines).most_common(1)
    return Repetition(
        lines=len(lines),
        repeated=len(lines) - len(set(lines)),
        near=len(lines) - len({_DIGITS.sub("0", line) for line in lines}),
        commonest=common[0][0][:_EXCERPT] if common else "",
        commonest_count=common[0][1] if common else 0,
        tokens=total,
        said=_said([tokens.symbols for tokens in cut]),
        loops=tuple(loops),
    )


def _channel(name: str, text: str) -> tuple[list[Loop], list[str], TextTokens]:
    tokens = tokens_of(text)
    loops = []
    for cycle in find_cycles(tokens.symbols, TOKENS.shortest):
        if TOKENS.holds(cycle, len(tokens)):
            first, last = int(tokens.starts[cycle.start]), int(tokens.starts[cycle.end])
            once = text[first : int(tokens.starts[cycle.start + cycle.period])]
            loops.append(_loop(name, TOKENS, cycle, len(tokens), (first, last), once))
    lines, starts = _lines(text)
    if not loops:
        loops += _line_loops(name, lines, starts)
    return loops, lines, tokens


def _line_loops(name: str, lines: list[str], starts: list[int]) -> list[Loop]:
    """Loops whose lines are too short or whose periods too long to show in the tokens."""
    numbers: dict[str, int] = {}
    symbols = np.array([numbers.setdefault(line, len(numbers)) for line in lines], dtype=np.int64)
    loops = []
    for cycle in find_cycles(symbols, LINES.shortest):
        if LINES.holds(cycle, len(lines)):
            span = (starts[cycle.start], starts[cycle.end - 1] + len(lines[cycle.end - 1]))
            once = "\n".join(lines[cycle.start : cycle.start + cycle.period])
            loops.append(_loop(name, LINES, cycle, len(lines), span, once))
    return loops


def _loop(
    channel: str,
    bounds: Bounds,
    cycle: Cycle,
    total: int,
    span: tuple[int, int] | None = None,
    once: str = "",
) -> Loop:
    return Loop(
        channel=channel,
        unit=bounds.unit,
        period=cycle.period,
        copies=cycle.copies,
        start=cycle.start,
        length=cycle.length,
        share=cycle.length / total,
        first=span[0] if span else None,
        last=span[1] if span else None,
        excerpt=" ".join(once.split())[:_EXCERPT],
    )


def _lines(text: str) -> tuple[list[str], list[int]]:
    """Lines that are not blank, without white space at their ends, and where each begins."""
    lines, starts, place = [], [], 0
    for line in text.split("\n"):
        bare = line.strip()
        if bare:
            lines.append(bare)
            starts.append(place + len(line) - len(line.lstrip()))
        place += len(line) + 1
    return lines, starts


def _said(channels: Sequence[Symbols]) -> float:
    """The share of windows of SAID tokens that stood before in their channel."""
    windows = again = 0
    for symbols in channels:
        if len(symbols) > SAID:
            hashes = window_hashes(symbols, SAID)
            windows += len(hashes)
            again += len(hashes) - len(np.unique(hashes))
    return again / windows if windows else 0.0
