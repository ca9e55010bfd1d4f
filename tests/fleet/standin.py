"""A machine's shell with a home of its own, and a kit whose `ninfer` answers without a model."""

import hashlib
import io
import os
import signal
import socket
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

from ninfer.errors import HostBrokenError
from ninfer.fleet.box import Ran
from ninfer.fleet.dead_man import FOLDER
from ninfer.fleet.plans import Plan, Source
from ninfer.fleet.profiles import MODELS
from tests.fleet.vendor import VirtualClock

KEY = "serving-key-7d21ab"

# What the real one does of these commands, as far as a machine can tell.
PROGRAM = r"""#!/usr/bin/env python3
import json, pathlib, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

words = sys.argv[1:]
if words[0] == "--version":
    print("stand-in")
if words[0] == "kit":
    assert pathlib.Path(words[2], "MANIFEST.json").exists()
if words[0] == "fetch":
    folder = pathlib.Path(words[3]); folder.mkdir(exist_ok=True)
    (folder / "model").write_text(words[1]); print(folder / "model")
if words[0] == "serve":
    given = dict(zip(words[2::2], words[3::2]))
    if "--broken" in given:
        print("no such layer"); sys.exit(int(given["--broken"]))
    keys = pathlib.Path(given["--api-key-file"]).read_text().split()
    active = pathlib.Path(given["--activity-file"])

    class Server(BaseHTTPRequestHandler):
        def answer(self, body, status=200):
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            if self.headers["Authorization"].split()[1] not in keys:
                return self.answer({}, 401)
            self.answer({"data": [{"id": words[1], "max_model_len": 512}]})

        def do_POST(self):
            active.touch()
            self.answer({"usage": {"completion_tokens": 1}})

        def log_message(self, *_):
            pass

    ThreadingHTTPServer.allow_reuse_address = True
    server = ThreadingHTTPServer(("127.0.0.1", int(given["--port"])), Server)
    active.touch()
    server.serve_forever()
"""


def make_kit(folder: Path, *, mark: str = "", architecture: int = 86, ballast: int = 0) -> Source:
    """A kit's archive; `mark` makes it another one, `ballast` is bytes that do not compress."""
    path = folder / f"stand-in{mark}.kit.tar.gz"
    manifest = f'{{\n "architecture": {architecture},\n "mark": "{mark}"\n}}\n'
    contents = [("MANIFEST.json", manifest.encode(), 0o644)]
    contents.append(("bin/ninfer", PROGRAM.encode(), 0o755))
    contents.append(("requirements.lock", b"", 0o644))
    contents.append(("ballast", os.urandom(ballast), 0o644))
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for name, data, mode in contents:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))
    return Source(path, "", hashlib.sha256(path.read_bytes()).hexdigest())


def make_plan(kit: Source, port: int, *options: str, **changes: object) -> Plan:
    values = {
        "kit": kit,
        "model": MODELS["tiny"],
        "options": options,
        "key": KEY,
        "python": "/usr/bin/env",
        "port": port,
    }
    return Plan(**{**values, **changes})


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def environ_of(home: Path) -> dict[str, str]:
    """The environment of a machine whose root lives in `home`."""
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}


class PacedClock:
    """Real time on top of a scene's, so that real programs get on; long pauses are skipped."""

    START = time.monotonic()

    def __init__(self, scene: VirtualClock) -> None:
        self._scene = scene

    def now(self) -> float:
        return self._scene.now() + time.monotonic() - self.START

    def sleep(self, seconds: float) -> None:
        pause = min(seconds, 0.05)
        time.sleep(pause)
        self._scene.sleep(seconds - pause if seconds > 2 else 0.0)


Around = Callable[[int, str, str], str]


class ShellBox:
    """The shell of one machine; `around(number, moment, command)` may break the link or hang it.

    It is asked at the moments `before` and `after`, and answers `""`, `break`, or `hang`.
    """

    count = 0

    def __init__(self, home: Path, around: Around | None = None) -> None:
        self.home = home
        self.around = around or (lambda number, moment, command: "")

    def run(self, command: str, *, stdin: str | bytes = "", timeout: float = 60.0) -> Ran:
        number, ShellBox.count = ShellBox.count, ShellBox.count + 1
        what = self.around(number, "before", command)
        if not what:
            ran = self._run(command, stdin, timeout)
            what = self.around(number, "after", command)
        if what == "break":
            raise HostBrokenError("the link broke", category="no-ssh")
        return Ran(-1, "", "") if what == "hang" else ran

    def _run(self, command: str, stdin: str | bytes, timeout: float) -> Ran:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            ["sh", "-c", command.replace(FOLDER, str(self.home / ".ninfer"))],
            input=given,
            capture_output=True,
            timeout=timeout,
            env=environ_of(self.home),
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def close(self) -> None:
        pass


def end_server(home: Path) -> None:
    """Whatever a test left running in that home."""
    for file in home.glob(".ninfer/**/serve.pid"):
        try:
            os.killpg(int(file.read_text()), signal.SIGKILL)
        except (ProcessLookupError, ValueError):
            continue
