"""What commands print besides data: progress bars and closing statistics, all on stderr."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from ninfer.audit.live import LiveVerdict
from ninfer.errors import UsageError
from ninfer.request import GenerationResult, TextDelta, TokenLogprob, ToolCall, Usage

# More than any table needs; a narrower terminal wraps lines, which loses nothing.
_TABLE_WIDTH: Final = 300


@contextmanager
def byte_progress(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar in bytes, shown only when stderr is a terminal.

    Yields a function of (name, bytes done, bytes in all).
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(title, total=None)

        def advance(name: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield advance


@contextmanager
def item_progress(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A progress bar in items, shown only when stderr is a terminal; yields "one more"."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on stdout: the first column to the left, the others to the right, nothing cut."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(escape, row))
    Console(file=sys.stdout, width=_TABLE_WIDTH, highlight=False).print(table)


def write_text(flag: str, path: Path, text: str) -> None:
    """Write a file that an option names. Raises UsageError naming both."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{flag} {path}: {error.strerror}") from error


class AnswerPrinter:
    """Text as it comes: the answer on stdout, reasoning on stderr, each ended by a line break.

    A complete call is one line of stdout, in the form in which messages hold it.

    As a context it ends open lines when the generation fails, so that the error has its own line.
    """

    def __init__(self) -> None:
        self._open = {"content": False, "reasoning": False}
        self._answered = False

    def show(self, delta: TextDelta) -> None:
        """Print one piece at once."""
        if not delta.text:
            return
        if delta.channel == "content":
            self._end("reasoning")
        stream = sys.stdout if delta.channel == "content" else sys.stderr
        stream.write(delta.text)
        stream.flush()
        self._open[delta.channel] = not delta.text.endswith("\n")
        self._answered |= delta.channel == "content"

    def show_call(self, call: ToolCall) -> None:
        """Print a call as one JSON object on a line of its own."""
        self.__exit__()
        function = {"name": call.name, "arguments": call.arguments}
        print(json.dumps({"id": call.id, "type": "function", "function": function}), flush=True)
        self._answered = True

    def end(self, usage: Usage) -> None:
        """Finish both lines, and say so when the limit came before the answer did."""
        self.__exit__()
        if not self._answered and usage.reasoning_tokens:
            print(
                f"no answer: all {usage.completion_tokens} tokens were thinking; "
                "raise --max-new or use --no-thinking",
                file=sys.stderr,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._end("reasoning")
        self._end("content")

    def _end(self, channel: str) -> None:
        if self._open[channel]:
            print(file=sys.stdout if channel == "content" else sys.stderr, flush=True)
            self._open[channel] = False


def print_result(result: GenerationResult, verdict: LiveVerdict, *, token_ids: bool) -> None:
    """Print how the generation went; its rate stands beside what was written at that rate."""
    usage = result.usage
    lines = [
        f"finish: {result.finish_reason}",
        f"tokens: {usage.prompt_tokens} prompt, {usage.completion_tokens} generated "
        f"({usage.reasoning_tokens} reasoning)",
        f"prefix: cached {usage.cached_tokens} of {usage.prompt_tokens} prompt tokens"
        + (f" ({result.prefix_miss})" if result.prefix_miss else ""),
        f"prefill: {_rate(usage.prompt_tokens - usage.cached_tokens, result.prefill_seconds)}",
        f"decode: {_rate(usage.completion_tokens - 1, result.decode_seconds)}; {verdict}",
    ]
    if token_ids:
        lines.append("token ids: " + " ".join(map(str, result.token_ids)))
    shown = [("prompt logprob", entry) for entry in result.prompt_logprobs if entry]
    shown += [("logprob", entry) for entry in result.logprobs]
    lines += [_logprob(title, entry) for title, entry in shown]
    print("\n".join(lines), file=sys.stderr)


def _logprob(title: str, entry: TokenLogprob) -> str:
    best = "".join(f" {token}={value:.4f}" for token, value in entry.top)
    return f"{title}: {entry.token_id}={entry.logprob:.4f}" + (f"; best{best}" if best else "")


def _rate(tokens: int, seconds: float) -> str:
    if tokens <= 0 or seconds <= 0:
        return "none"
    return f"{seconds * 1e3:.0f} ms, {tokens / seconds:.1f} tok/s"
