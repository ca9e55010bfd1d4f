"""From nothing to a rented machine that serves `tiny` from a real kit, and back to nothing.

The vendor is the one of the fleet's tests, the machine a real shell behind a real SSH server with
a home of its own. Time per stage is printed, and every secret is looked for all the while.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import pytest

from ninfer.cli import main
from ninfer.cli.fleet import opening
from ninfer.fleet.dead_man import FOLDER
from ninfer.fleet.ssh_keys import public_key
from ninfer.kits import build as kit_build
from ninfer.kits.limits import Needs
from ninfer.kits.options import BuildOptions
from tests.fleet.conftest import Scene, opened_scene
from tests.fleet.ssh_server import SshServer, write_key
from tests.fleet.standin import PacedClock, end_server, environ_of, free_port
from tests.fleet.tunnel_process import TunnelProcess
from tests.fleet.vendor import KEY, Machine

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SERVING_KEY = "serving-5c1e77a0b3"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A whole kit but for its kernels, which a machine without a card does not launch."""
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"torch==2.13.0 --hash=sha256:{'0' * 64}\n")
    monkeypatch.setattr(kit_build, "compile_models", lambda *_, **__: [])
    monkeypatch.setattr(kit_build, "compile_kit", lambda *_: 0)
    monkeypatch.setattr(kit_build, "needs", lambda *_: Needs(0, 0, 0, 0, 0))
    options = BuildOptions(architecture=86, output=tmp_path, lock=lock)
    return kit_build.build(options, "test", lambda text: None).archive


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with opened_scene(tmp_path) as made:
        yield made


@pytest.fixture
def box(scene: Scene, tmp_path: Path) -> Iterator[SshServer]:
    """The machine: its start script runs at birth, its home is its own."""
    (tmp_path / "keys").mkdir()
    home = tmp_path / "machine"
    (home / ".ninfer").mkdir(parents=True)
    environ = {**environ_of(home), "OMP_NUM_THREADS": "1"}
    server = SshServer(home / ".ninfer", public_key(write_key(tmp_path / "keys")), environ)
    scene.vendor.ssh = ("127.0.0.1", server.port)
    scene.vendor.dead_man = False
    groups: list[int] = []

    def born(machine: Machine) -> None:
        script = machine.body["onstart"].replace(FOLDER, str(home / ".ninfer"))
        given = {"CONTAINER_ID": str(machine.id), "CONTAINER_API_KEY": f"own-{machine.id}"}
        started = subprocess.Popen(
            ["sh", "-c", script.replace("setsid sh", "sh")],
            env={**environ, **given},
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        groups.append(started.pid)
        started.wait(30)
        public = server.host_key.export_public_key().decode()
        scene.vendor.logs[machine.id] = f"ninfer-hostkey {public}"

    scene.vendor.on_make = born
    yield server
    end_server(home)
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue
    server.close()


@pytest.fixture
def call(
    scene: Scene,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Call:
    project = tmp_path / "project"
    (project / ".env").write_text(
        f"VAST_API_KEY='{KEY}'\nVAST_URL={scene.wire.root}\nNINFER_API_KEY={SERVING_KEY}\n"
    )
    (project / ".env").chmod(0o600)
    monkeypatch.setenv("NINFER_PROJ", str(project))
    monkeypatch.setenv("NINFER_SSH_KEY", str(tmp_path / "keys" / "id"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(opening, "clock", lambda: PacedClock(scene.vendor.clock))

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(list(arguments))
        captured = capsys.readouterr()
        for secret in (KEY, SERVING_KEY):
            assert secret not in captured.out + captured.err
        return status, captured.out, captured.err

    return run


class SecretWatch:
    """Reads every process's command line and environment of the machine's, over and over.

    Files are looked through at the end: those that may hold a secret are named.
    """

    def __init__(self, folder: Path, secrets: list[str], allowed: set[Path]) -> None:
        self._folder = folder
        self._secrets = [secret.encode() for secret in secrets]
        self._allowed = allowed
        self._ended = threading.Event()
        self._found: list[str] = []
        self.looks = 0
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._ended.wait(0.05):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self._check(path, path.read_bytes())
                except OSError:
                    continue
            self.looks += 1

    def _check(self, path: Path, data: bytes) -> None:
        self._found += [f"{path}: {data[:200]!r}" for s in self._secrets if s in data]

    def __enter__(self) -> "SecretWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def check(self) -> int:
        """Raises for any secret that was seen; returns how many files were read."""
        files = [path for path in self._folder.rglob("*") if path.is_file()]
        for path in files:
            if path not in self._allowed:
                self._check(path, path.read_bytes())
        assert self._found == []
        return len(files)


def test_create_serve_down_up_destroy(
    scene: Scene,
    box: SshServer,
    call: Call,
    kit: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    record_property: Callable[[str, object], None],
) -> None:
    """Must-show 1 and 4."""
    port, folder = free_port(), tmp_path / "machine" / ".ninfer"
    client_file = tmp_path / "config" / "opencode" / "opencode.json"
    client_file.parent.mkdir(parents=True)
    client_file.write_text('{\n  // mine\n  "theme": "dark"\n}\n')
    own_key = "own-7001"
    allowed = {tmp_path / "project" / ".env", folder / "key"}
    with SecretWatch(tmp_path, [KEY, SERVING_KEY, own_key], allowed) as watch:
        status, out, err = call(
            *("create", "--json", "--model", "tiny", "--no-card", "--kit", str(kit)),
            *("--python", sys.executable, "--serve-port", str(port)),
            *("--serve-option=--max-context", "--serve-option=1024"),
            *("--write-client", "opencode"),
        )
        assert status == 0, err
        record = json.loads(out)["provision"]
        assert record["models"] == ["tiny"] and record["output_tokens"] == 1
        assert record["resident_mib"] > 50
        record_property("seconds of each stage", json.dumps(record["seconds"]))
        with capsys.disabled():
            sys.stderr.write(f"seconds of each stage: {record['seconds']}\n")
        text = client_file.read_text()
        assert "// mine" in text and "127.0.0.1:8080/v1" in text and "tiny" in text
        with TunnelProcess(port) as base:
            client = openai.OpenAI(base_url=base, api_key=SERVING_KEY, timeout=120)
            question = [{"role": "user", "content": "Say yes."}]

            def ask() -> str:
                answer = client.chat.completions.create(
                    model="tiny", messages=question, max_tokens=8, temperature=0
                )
                assert answer.usage is not None and answer.usage.completion_tokens > 0
                return answer.choices[0].message.content or ""

            (folder / "active").unlink()
            first = ask()
            assert (folder / "active").exists(), "a request keeps the machine"
            status, out, err = call("down")
            assert status == 0 and "still bill" in out, err
            assert "not stopped first" not in err
            assert "ended with status 0" in (folder / "serve.log").read_text()
            watch.check()
            box.stop()
            box.start()
            scene.vendor.ssh = ("127.0.0.1", box.port)
            status, out, err = call("up")
            assert status == 0 and f"serves at 127.0.0.1:{box.port}" in out, err
            assert ask() == first
        status, out, err = call(
            *("restore", "--json", "--model", "tiny", "--no-card", "--kit", str(kit)),
            *("--python", sys.executable, "--serve-port", str(port)),
            *("--serve-option=--max-context", "--serve-option=1024"),
        )
        assert status == 0, err
        assert json.loads(out)["done"] == ["serve", "health", "token"]
        status, out, _ = call("destroy")
        assert status == 0 and scene.vendor.alive() == []
    assert watch.check() > 100 and watch.looks > 10
