"""Arrival traces: which conversation asks when, with how many tokens; read, or drawn by a seed."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ninfer.errors import UsageError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

COLUMNS: Final = ("arrival_s", "conversation", "prompt_tokens", "answer_tokens")


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests by arrival. A turn whose predecessor still runs begins when that one has ended."""

    arrivals: Floats  # [R] seconds, ascending
    conversations: Ints  # [R] 0..conversations - 1
    prompts: Ints  # [R] tokens, those of earlier turns included
    answers: Ints  # [R] tokens, 1 or more

    def __len__(self) -> int:
        return len(self.arrivals)

    def faster(self, factor: float) -> "Trace":
        """The same requests, `factor` times as many a second."""
        return Trace(self.arrivals / factor, self.conversations, self.prompts, self.answers)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a drawn trace looks like. Tokens are means of geometric draws, 1 at least."""

    rate: float  # requests a second
    turns: float  # of a conversation, mean
    system_tokens: int  # before the first turn, computed anew in every conversation
    turn_tokens: int
    answer_tokens: int
    pause: float  # seconds between the arrivals of a conversation's turns, mean


def draw(shape: Shape, requests: int, seed: int) -> Trace:
    """A trace of at least one conversation and exactly `requests` requests.

    Conversations begin as a Poisson process, their turns follow after exponential pauses.
    """
    random = np.random.default_rng(seed)
    count = max(1, int(np.ceil(requests / shape.turns * 1.2)) + 16)
    turns = random.geometric(1 / shape.turns, count)
    while turns.sum() < requests:
        turns = np.concatenate([turns, random.geometric(1 / shape.turns, count)])
    turns = turns[: int(np.searchsorted(turns.cumsum(), requests)) + 1]
    owner = np.repeat(np.arange(len(turns)), turns)
    first = np.concatenate([[0], turns.cumsum()[:-1]])
    begins = random.exponential(shape.turns / shape.rate, len(turns)).cumsum()
    pauses = random.exponential(shape.pause, len(owner)) if shape.pause else np.zeros(len(owner))
    pauses[first] = 0.0
    asked = random.geometric(1 / shape.turn_tokens, len(owner))
    answers = random.geometric(1 / shape.answer_tokens, len(owner))
    arrivals = np.repeat(begins, turns) + _within(pauses, first, turns)
    before = _within(asked + answers, first, turns) - answers
    prompts = shape.system_tokens + before
    order = np.argsort(arrivals, kind="stable")[:requests]
    return Trace(arrivals[order], owner[order], prompts[order], answers[order])


def _within(values: npt.NDArray[Any], first: Ints, turns: Ints) -> npt.NDArray[Any]:
    """Running sums that begin anew with each conversation."""
    sums: npt.NDArray[Any] = np.cumsum(values)
    begun: npt.NDArray[Any] = np.repeat(sums[first] - values[first], turns)
    within: npt.NDArray[Any] = sums - begun
    return within


def read_trace(path: Path) -> Trace:
    """A CSV file with the columns of COLUMNS; conversations may have any names.

    Raises UsageError naming the file and the line.
    """
    rows: list[tuple[float, str, int, int]] = []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise UsageError(f"--trace {path}: lacks the column {missing[0]}; add it")
            for row in reader:
                rows.append(_row(row, f"--trace {path}, line {reader.line_num}"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"--trace {path}: {reason}") from None
    if not rows:
        raise UsageError(f"--trace {path}: holds no request; add lines below the names of columns")
    rows.sort(key=lambda row: row[0])
    numbers: dict[str, int] = {}
    names = [numbers.setdefault(row[1], len(numbers)) for row in rows]
    return Trace(
        np.array([row[0] for row in rows]),
        np.array(names),
        np.array([row[2] for row in rows]),
        np.array([row[3] for row in rows]),
    )


def _row(row: dict[str, str], where: str) -> tuple[float, str, int, int]:
    try:
        found = (
            float(row["arrival_s"]),
            row["conversation"],
            int(row["prompt_tokens"]),
            int(row["answer_tokens"]),
        )
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: {error}; write seconds, a name and two counts") from None
    if not (0 <= found[0] < float("inf")) or found[2] < 1 or found[3] < 1:
        raise UsageError(f"{where}: times are finite, 0 or more, tokens 1 or more; correct it")
    return found
