"""Standard streams and signals of a command: closed or narrow streams, clean ends."""

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ninfer.errors import UsageError


def prepare_streams() -> None:
    """Make stderr usable whatever the caller did with it; text that has no encoding is escaped.

    Raises UsageError when stdout is closed, since the result would be lost without a word.
    """
    if sys.stderr is None:
        sys.stderr = _nowhere()
    if sys.stdout is None:
        sys.stdout = _nowhere()
        raise UsageError("stdout is closed; the result would be lost")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _nowhere() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.FileIO(os.devnull, "w"), encoding="utf-8")


def abandon_stdout() -> None:
    """Send what is still buffered nowhere; flushing it at exit would raise once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def interrupts_heard(heard: bool) -> Iterator[None]:
    """Inside, Ctrl-C raises KeyboardInterrupt, or does nothing; afterwards it is as before.

    Around the places where it may raise, so that a second one in a row finds nothing to end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    wanted = signal.default_int_handler if heard else signal.SIG_IGN
    before = signal.signal(signal.SIGINT, wanted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def signals_as_exits() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise, so that temporary files go as on any other failure.

    A signal that the caller of the process chose to ignore, as nohup does with SIGHUP, stays
    ignored. Only the main thread may set handlers; elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    heard = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    ]
    before = {number: signal.signal(number, leave) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
