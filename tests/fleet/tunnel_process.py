"""`ninfer tunnel` as a process."""

import signal
import subprocess
import sys


class TunnelProcess:
    """Runs until the block ends, by Ctrl-C; gives its address."""

    def __init__(self, remote: int) -> None:
        words = ["tunnel", "--port", "0", "--remote-port", str(remote)]
        self._line = [sys.executable, "-m", "ninfer", *words]

    def __enter__(self) -> str:
        self._process = subprocess.Popen(self._line, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=120)
        assert self._process.returncode == 130
