"""Result files: a header line, then one JSON line for each answered item, written as they come."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from ninfer.errors import UsageError
from ninfer.evals.answer import Answer
from ninfer.evals.suite import Item
from ninfer.json_text import parse_json
from ninfer.request import FinishReason, ToolCall

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Header:
    """What the outcomes of a file have in common: `model` is a hash of the weights' file.

    `settings` are the engine options that could change an answer, by name.
    """

    suite: str
    model: str
    artifact: str
    settings: Mapping[str, Any]
    ninfer: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """One graded answer; `digest` is that of the item, `reasons` () say that it is right."""

    id: str
    task: str
    digest: str
    reasons: tuple[str, ...]
    answer: Answer

    @property
    def is_right(self) -> bool:
        """Whether the grader found nothing wrong."""
        return not self.reasons

    def to_json(self) -> str:
        """One line without its end."""
        return json.dumps({**asdict(self), "right": self.is_right}, ensure_ascii=False)


class ResultFile:
    """A result file that grows. As a context it is closed at the end.

    `outcomes` holds what the file has, by item id; of two lines on one item the later counts.
    """

    def __init__(self, path: Path, header: Header) -> None:
        """Open or create. Raises UsageError for a file of another run, or that is none."""
        self.path: Final = path
        self.outcomes: dict[str, Outcome] = {}
        whole = _whole_lines(path) if path.exists() else ""
        if whole:
            before, self.outcomes = _parse(whole, path)
            _check_same(before, header, path)
        try:
            self._file: IO[str] = path.open("a", encoding="utf-8", newline="\n")
            # A line that was cut by a sudden end goes, so that the next one is whole.
            self._file.truncate(len(whole.encode()))
            if not whole:
                self._write(json.dumps({"schema": SCHEMA, **asdict(header)}, ensure_ascii=False))
        except OSError as error:
            raise UsageError(f"--output {path}: {error.strerror}") from error

    def holds(self, item: Item) -> bool:
        """Whether the file has an outcome of this very item."""
        found = self.outcomes.get(item.id)
        return found is not None and found.digest == item.digest

    def add(self, outcome: Outcome) -> None:
        """Write an outcome; it is in the file when the call returns."""
        self.outcomes[outcome.id] = outcome
        self._write(outcome.to_json())

    def _write(self, line: str) -> None:
        self._file.write(line + "\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def read_results(path: Path) -> tuple[Header, dict[str, Outcome]]:
    """Header and outcomes by item id. Raises UsageError for a file that is no result file."""
    whole = _whole_lines(path)
    if not whole:
        raise UsageError(f"{path}: holds no results")
    return _parse(whole, path)


def _whole_lines(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UsageError(f"{path}: no result file: not UTF-8 text") from None
    return text[: text.rfind("\n") + 1]


def _parse(text: str, path: Path) -> tuple[Header, dict[str, Outcome]]:
    first, *rest = text.removesuffix("\n").split("\n")
    values = parse_json(first, f"{path}: no result file: line 1", UsageError)
    if not isinstance(values, dict) or values.pop("schema", None) != SCHEMA:
        raise UsageError(f"{path}: no result file of schema {SCHEMA}")
    header: Header = _built(Header, values, f"{path}:1")
    outcomes = {}
    for number, line in enumerate(rest, 2):
        where = f"{path}:{number}"
        outcome = _outcome(parse_json(line, where, UsageError), where)
        outcomes[outcome.id] = outcome
    return header, outcomes


def _outcome(values: Any, where: str) -> Outcome:
    if not isinstance(values, dict) or not isinstance(values.get("answer"), dict):
        raise UsageError(f"{where}: no outcome of an item")
    answer = dict(values["answer"])
    try:
        calls = answer["tool_calls"]
        answer["tool_calls"] = tuple(_built(ToolCall, call, where) for call in calls)
        answer["finish_reason"] = FinishReason(answer["finish_reason"])
        answer["token_ids"] = tuple(answer["token_ids"])
        kept = {
            **{name: value for name, value in values.items() if name != "right"},
            "reasons": tuple(values["reasons"]),
            "answer": _built(Answer, answer, where),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{where}: no outcome of an item: {error}") from error
    outcome: Outcome = _built(Outcome, kept, where)
    return outcome


def _built(kind: type[Any], values: Any, where: str) -> Any:
    """A dataclass from an object with exactly its fields. Raises UsageError."""
    names = {field.name for field in fields(kind)}
    if not isinstance(values, dict) or set(values) != names:
        raise UsageError(f"{where}: {kind.__name__} must have {', '.join(sorted(names))}")
    return kind(**values)


def _check_same(before: Header, now: Header, path: Path) -> None:
    for field in fields(Header):
        old, new = getattr(before, field.name), getattr(now, field.name)
        if old != new:
            raise UsageError(
                f"--output {path}: holds results of another {field.name} ({old}; now {new}); "
                "give another file"
            )
