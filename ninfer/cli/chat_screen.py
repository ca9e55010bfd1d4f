"""What the chat shows: answers on stdout; thinking, notes and counts on stderr, dimmed."""

import contextlib
import os
import re
import sys
from typing import Final, TextIO

from ninfer.client import AnswerEnd, AnswerText, ChatEvent, FunctionCall, ReasoningText

_DIM: Final = "\x1b[2m"
_PLAIN: Final = "\x1b[0m"
# Characters that would command the terminal rather than be seen on it.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class ChatScreen:
    """Prints events as they come. Dims and cleans only what goes to a terminal.

    What a model writes may hold terminal commands; on a terminal they are shown as symbols.
    """

    def __init__(self) -> None:
        self._asks = sys.stdin.isatty()
        self._open: TextIO | None = None  # the stream whose line is not finished
        if self._asks:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  # gives input() its editing and history

    def ask(self, *, more: bool) -> str:
        """The next line of the user. Raises EOFError at the end of the input."""
        if self._asks:
            return input("... " if more else "> ")
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")

    def show(self, event: ChatEvent) -> None:
        """Print one event at once."""
        match event:
            case ReasoningText(text):
                self._write(sys.stderr, text, dim=True)
            case AnswerText(text):
                self._write(sys.stdout, text)
            case FunctionCall():
                self.end_lines()
                self._write(sys.stdout, f"[call {event.name} {event.arguments}]\n")
            case AnswerEnd():
                self.end_lines()
                self.note(_closing(event))

    def note(self, text: str) -> None:
        """A line about the conversation, not of it."""
        self.end_lines()
        self._write(sys.stderr, text + "\n", dim=True)

    def end_lines(self) -> None:
        """Finish the line that is open, on whichever stream."""
        if self._open is not None:
            print(file=self._open, flush=True)
            self._open = None

    def _write(self, stream: TextIO, text: str, *, dim: bool = False) -> None:
        if not text:
            return
        if self._open not in (None, stream):
            self.end_lines()
        if stream.isatty():
            text = _CONTROL.sub(_symbol, text)
            if dim and not os.environ.get("NO_COLOR"):
                text = f"{_DIM}{text}{_PLAIN}"
        stream.write(text)
        stream.flush()
        ended = text.removesuffix(_PLAIN).endswith("\n")
        self._open = None if ended else stream


def _symbol(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "\N{SYMBOL FOR DELETE}"


def _closing(end: AnswerEnd) -> str:
    usage = end.usage
    if usage is None:
        return f"finish: {end.reason}"
    return (
        f"finish: {end.reason}; tokens: {usage.prompt} prompt ({usage.cached} cached), "
        f"{usage.completion} generated ({usage.reasoning} reasoning)"
    )
