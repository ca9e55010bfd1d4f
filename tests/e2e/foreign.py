"""Programs of others: where they are installed, and how they run without a network."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

# Made by `make e2e`.
CLIENTS = Path(__file__).resolve().parent.parent.parent / "build" / "clients"
# Nothing listens there: a client that wants more than the server of the test is told so at once.
NOWHERE = "http://127.0.0.1:9"


def client_environment(home: Path, **extra: str) -> dict[str, str]:
    """What a client sees: a home of its own, its own node, no network but this machine."""
    path = os.pathsep.join([str(CLIENTS / "bin"), "/usr/local/bin", "/usr/bin", "/bin"])
    closed = {f"{scheme}_proxy": NOWHERE for scheme in ("http", "https")}
    closed |= {name.upper(): value for name, value in closed.items()}
    own = {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1", "LANG": "C.UTF-8", "TERM": "dumb"}
    return {"PATH": path, "HOME": str(home), **closed, **own, **extra}


def run_client(
    words: Sequence[str], env: Mapping[str, str], folder: Path, *, fails: bool = False
) -> str:
    """Run a program to its end, which comes within four minutes; gives what it prints."""
    assert (CLIENTS / "ready").exists(), "no clients; 'make build/clients/ready' installs them"
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(
        list(words), env=dict(env), cwd=folder, text=True, start_new_session=True, **pipes
    ) as running:
        try:
            out, err = running.communicate(timeout=240)
        finally:
            # Nothing that it left running survives it; most clients leave nothing.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    shown = f"{words} gave {running.returncode}\n{out[-4000:]}\n{err[-4000:]}"
    assert (running.returncode != 0) == fails, shown
    return out
