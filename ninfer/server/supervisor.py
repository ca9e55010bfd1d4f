"""Runs a server as a child process and starts it again when it has failed."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import Final

from ninfer.log import get_logger

_log = get_logger(__name__)
# What a server whose engine has failed exits with; others are not started again.
ENGINE_FAILED: Final = 70
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
# One that ran for so long had started well: the next pause is short again.
_LONG_RUN: Final = 300.0


def supervise(argv: Sequence[str]) -> int:
    """Run `python -m ninfer ARGV` until it ends by itself or by a signal; gives its exit status.

    It is started again when its engine has failed, or when it was killed by a fault, after a pause
    that doubles. A server that could not start is an error of its options, and is not repeated.
    """
    command = [sys.executable, "-m", "ninfer", *argv]
    pause = _FIRST_PAUSE
    child: subprocess.Popen[bytes] | None = None
    stopped = threading.Event()

    def pass_on(number: int, frame: FrameType | None) -> None:
        stopped.set()
        if child is not None:
            child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    while True:
        began = time.monotonic()
        child = subprocess.Popen(command)
        status = child.wait()
        if stopped.is_set() or not _is_fault(status):
            return status
        if time.monotonic() - began > _LONG_RUN:
            pause = _FIRST_PAUSE
        _log.error("the server ended with status %d; it starts again in %g s", status, pause)
        if stopped.wait(pause):
            return 0
        pause = min(2 * pause, _LONGEST_PAUSE)


def _is_fault(status: int) -> bool:
    return status == ENGINE_FAILED or status < 0
