"""The fleet's commands as a person types them: output, exit statuses, secrets, time."""

import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from ninfer.cli import main
from ninfer.cli.fleet import opening
from ninfer.fleet.contract import Stage
from ninfer.fleet.dead_man import FOLDER
from ninfer.fleet.ssh_keys import public_key
from tests.fleet.conftest import Scene
from tests.fleet.scene import make
from tests.fleet.ssh_server import SshServer, write_key
from tests.fleet.test_fleet_ssh import Model
from tests.fleet.tunnel_process import TunnelProcess
from tests.fleet.vendor import KEY, Machine, offer
from tests.fleet.wire import BY_NAME

Call = Callable[..., tuple[int, str, str]]
CDI = "Error: failed to inject CDI devices: unresolvable CDI devices"


def _awake(folder: Path) -> bool:
    """Whether the dead-man has said that it can end its machine, or why not."""
    armed = folder / "armed"
    word = armed.read_text().strip() if armed.exists() else ""
    return word.startswith("no ") or (word == "yes" and (folder / "beat").exists())


@pytest.fixture
def box(scene: Scene, tmp_path: Path) -> Iterator[SshServer]:
    """A machine that runs what it is told at its start, dead-man included, behind real SSH."""
    (tmp_path / "keys").mkdir()
    key = write_key(tmp_path / "keys")
    folder = tmp_path / "box"
    server = SshServer(folder, public_key(key))
    scene.vendor.ssh = ("127.0.0.1", server.port)
    scene.vendor.dead_man = False
    groups: list[int] = []

    def born(machine: Machine) -> None:
        script = machine.body["onstart"].replace(FOLDER, str(folder)).replace("setsid sh", "sh")
        environ = {
            "PATH": os.environ["PATH"],
            "CONTAINER_ID": str(machine.id),
            "CONTAINER_API_KEY": f"own-{machine.id}",
        }
        quiet = subprocess.DEVNULL
        started = subprocess.Popen(
            ["sh", "-c", script], env=environ, start_new_session=True, stdout=quiet, stderr=quiet
        )
        groups.append(started.pid)
        started.wait(60)
        # The fleet's clock jumps, the dead-man's does not: it is awake before anyone looks.
        end = time.monotonic() + 120
        while not _awake(folder) and time.monotonic() < end:
            time.sleep(0.01)
        scene.vendor.logs[machine.id] = "ninfer-hostkey " + _public(server)

    scene.vendor.on_make = born
    yield server
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue
    server.close()


def _public(server: SshServer) -> str:
    return server.host_key.export_public_key().decode()


@pytest.fixture
def call(
    scene: Scene,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Call:
    """Runs one command in this process, in the scene's time, in a folder with a `.env`."""
    project = tmp_path / "project"
    (project / ".env").write_text(f"VAST_API_KEY='{KEY}'\nVAST_URL={scene.wire.root}\n")
    (project / ".env").chmod(0o600)
    monkeypatch.setenv("NINFER_PROJ", str(project))
    monkeypatch.setenv("NINFER_SSH_KEY", str(tmp_path / "keys" / "id"))
    monkeypatch.setattr(opening, "clock", lambda: scene.vendor.clock)

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(list(arguments))
        captured = capsys.readouterr()
        assert KEY not in captured.out + captured.err
        return status, captured.out, captured.err

    return run


def no_secret_in(folder: Path, secrets: list[str]) -> None:
    """Must-show 4: neither files nor any process list."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".env"]
    command_lines = list(Path("/proc").glob("[0-9]*/cmdline"))
    for path in files + command_lines:
        try:
            data = path.read_bytes()
        except OSError:
            continue
        for secret in secrets:
            assert secret.encode() not in data, f"{secret} in {path}"


def test_from_create_to_destroy(
    scene: Scene,
    call: Call,
    box: SshServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Must-show 1 without a kit: create, tunnel, down, up at another address, destroy."""
    secrets = [KEY, "own-7001"]
    status, out, err = call("create", "--bare", "--name", "one")
    assert status == 0, err
    assert re.search(r"one: machine 7001, RTX 5090, costs \$0\.3111/h; ends itself in 8\.0 h", out)
    assert "first use" not in err, "the host key came over the vendor's log"
    assert (
        'NINFER_BASE_URL="http://127.0.0.1:8080/v1"' in (tmp_path / "project" / ".env").read_text()
    )
    no_secret_in(tmp_path, secrets)

    (line,) = json.loads(call("status", "--json")[1])["lines"]
    assert line["state"] == "running" and line["rate"] == pytest.approx(0.3111, abs=1e-4)
    assert "running" in call("status")[1]

    become: list[list[str]] = []
    monkeypatch.setattr(os, "execvp", lambda file, arguments: become.append(arguments))
    call("ssh", "nvidia-smi", "-L")
    call("log", "--lines", "7")
    assert become[0][-3:] == ["root@127.0.0.1", "nvidia-smi", "-L"]
    assert become[1][-5:] == ["tail", "-n", "7", "-F", ".ninfer/serve.log"]
    assert "StrictHostKeyChecking=yes" in become[0]

    with model_server() as port, TunnelProcess(port) as base:
        assert httpx.get(f"{base}/models", trust_env=False, timeout=60).text == "/v1/models" * 1000
        status, out, _ = call("down")
        assert status == 0 and "still bill $0.0111/h" in out
        box.stop()
        no_secret_in(tmp_path, secrets)
        box.start()
        scene.vendor.ssh = ("127.0.0.1", box.port)
        status, out, err = call("up")
        assert status == 0 and f"127.0.0.1:{box.port}" in out, err
        assert httpx.get(f"{base}/models", trust_env=False, timeout=60).text == "/v1/models" * 1000
    status, out, _ = call("destroy", "one")
    assert status == 0 and "costs $0.00/h from now on" in out
    assert scene.vendor.alive() == []
    assert "no machines; nothing bills" in call("status")[1]
    no_secret_in(tmp_path, secrets)


class model_server:
    """The machine's own server, which listens on its loopback."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Model)

    def __enter__(self) -> int:
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self._thread.start()
        return self._server.server_port

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def test_exit_statuses(scene: Scene, call: Call, box: SshServer) -> None:
    """The table of the specification: each status by a command that earns it."""

    def earns(status: int, *arguments: str, says: str) -> None:
        got, _, err = call(*arguments)
        assert (got, says in err) == (status, True), (got, err)
        assert err.count("ninfer: error:") == 1

    earns(2, "create", "--bare", "--name", "No Name", says="a name is")
    earns(2, "create", "--bare", "--gpu", "rtx1", says="no such card")
    earns(2, "create", "--bare", "--provider", "ssh", says="go together")
    earns(3, "destroy", says="no machine at all")
    earns(3, "badhosts", "forget", "5", says="not in the list")
    earns(4, "create", "--bare", "--reliability", "1", says="reliability 3")
    earns(9, "create", "--bare", "--budget", "0.1", says="raise --budget")
    earns(4, "create", "--bare", "--max-price", "0.1", says="price 3")
    scene.wire.fault = lambda number, kind: BY_NAME["401"]
    earns(5, "create", "--bare", says="refused VAST_API_KEY")
    scene.wire.fault = lambda number, kind: BY_NAME["503 page"]
    earns(10, "status", says="states are not known")
    earns(10, "create", "--bare", says="nothing was learnt")
    scene.wire.fault = lambda number, kind: None
    broken = (((0.0, None), (5.0, "created")), {"created": CDI})
    scene.vendor.behaviour = {601: broken, 602: broken, 603: broken}
    earns(6, "create", "--bare", says="CDI")
    assert scene.vendor.alive() == []
    scene.vendor.behaviour.clear()
    scene.vendor.offers.append(offer(110))
    assert call("create", "--bare")[0] == 0
    earns(11, "create", "--bare", says="is there already")
    scene.vendor.offers.append(offer(111))
    call("down")
    scene.vendor.gpu_taken = True
    earns(7, "up", says="taken by another")
    scene.vendor.deaf_destroys = 99
    earns(12, "destroy", says="may still bill")
    earns(12, "reap", says="may still bill")
    scene.vendor.deaf_destroys = 0
    assert call("reap")[0] == 0 and scene.vendor.alive() == []


def test_changed_host_key_is_status_8(scene: Scene, call: Call, box: SshServer) -> None:
    """Scenario 10: the container said one key, the host shows another."""
    made = scene.vendor.on_make

    def lying(machine: Machine) -> None:
        made(machine)
        scene.vendor.logs[machine.id] = "ninfer-hostkey ssh-ed25519 " + "B" * 68

    scene.vendor.on_make = lying
    status, _, err = call("create", "--bare")
    assert status == 8 and "not the pinned one" in err
    assert scene.vendor.alive() == []


def test_interrupt_is_status_130_and_ends_the_machine(
    scene: Scene, call: Call, box: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep = scene.vendor.clock.sleep
    pressed: list[float] = []

    def press(seconds: float) -> None:
        ours = threading.current_thread() is threading.main_thread()
        if ours and scene.vendor.rents and not pressed:
            pressed.append(seconds)
            raise KeyboardInterrupt
        sleep(seconds)

    monkeypatch.setattr(scene.vendor.clock, "sleep", press)
    status, _, err = call("create", "--bare")
    assert status == 130 and "nothing of it bills" in err and pressed
    assert scene.vendor.alive() == []


def test_closed_terminal_does_not_save_a_machine_from_its_end(
    scene: Scene, call: Call, box: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    scene.vendor.behaviour[601] = (((0.0, None), (5.0, "created")), {"created": CDI})
    monkeypatch.setattr(sys, "stderr", Closed())
    assert main(["create", "--bare"]) == 0
    assert [machine.offer["id"] for machine in scene.vendor.alive()] == [102]


def test_offers_are_listed_with_what_was_left_out(scene: Scene, call: Call) -> None:
    scene.vendor.offers.append(offer(104, reliability2=0.5))
    status, out, err = call("offers")
    assert status == 0 and re.search(r"101.*0\.3111.*0\.0111.*4000", out)
    assert "reliability 1" in err
    data = json.loads(call("offers", "--json")[1])
    assert [o["id"] for o in data["offers"]] == ["101", "102", "103"]
    assert data["left_out"] == [{"id": "104", "reason": "reliability: 0.5"}]
    status, out, _ = call("offers", "--gpu", "h200")
    assert status == 0 and "no offer passes" in out


def test_bad_hosts_are_listed_and_forgotten(scene: Scene, call: Call, box: SshServer) -> None:
    scene.vendor.behaviour[601] = (((0.0, None), (5.0, "created")), {"created": CDI})
    assert call("create", "--bare")[0] == 0
    assert re.search(r"601\s+gpu-injection\s+1", call("badhosts")[1])
    assert call("badhosts", "forget", "601")[0] == 0
    assert "no machine is avoided" in call("badhosts")[1]
    assert call("badhosts", "remember")[0] == 2


def test_without_a_key_nothing_is_said_to_be_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NINFER_PROJ", str(tmp_path))
    for command in ("status", "reap", "offers"):
        assert main([command]) == 2
        assert "VAST_API_KEY is not set" in capsys.readouterr().err


def test_readable_secrets_stop_create_and_not_destroy(
    scene: Scene, call: Call, box: SshServer, tmp_path: Path
) -> None:
    assert call("create", "--bare")[0] == 0
    (tmp_path / "project" / ".env").chmod(0o644)
    status, _, err = call("create", "--bare", "--name", "two")
    assert status == 2 and "chmod 600" in err
    assert call("destroy")[0] == 0 and scene.vendor.alive() == []


def test_settings_that_a_command_does_not_need_do_not_stop_it(
    scene: Scene, call: Call, box: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("create", "--bare")[0] == 0
    for name in ("NINFER_DISK", "NINFER_BUDGET", "NINFER_IDLE_MINUTES"):
        monkeypatch.setenv(name, "rubbish")
    monkeypatch.setenv("NINFER_KIT_SHA1", "0a7560")
    monkeypatch.setenv("NINFER_SSH_KEY", "/nowhere")
    status, _, err = call("create", "--bare", "--name", "two")
    assert status == 2 and "NINFER_KIT_SHA256" in err
    assert call("down")[0] == 0
    assert call("destroy")[0] == 0


def test_instance_by_variable(
    scene: Scene, call: Call, box: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("create", "--bare", "--name", "one")[0] == 0
    scene.fleet.store.close()  # another connection of this test's own process
    scene.reopened()
    monkeypatch.setenv("NINFER_INSTANCE", "other")
    assert call("destroy")[0] == 3
    monkeypatch.setenv("NINFER_INSTANCE", "7001")
    assert call("destroy")[0] == 0
    assert [row.stage for row in scene.fleet.store.contracts(closed=True)] == [Stage.CLOSED]


@pytest.mark.parametrize("machines", [0, 1, 3])
def test_status_is_one_list_and_little_time(scene: Scene, call: Call, machines: int) -> None:
    """Must-show 5: beyond the network under 700 ms, of which the processor's time is counted."""
    for number in range(machines):
        make(scene.fleet, f"m{number}")
    calls = len(scene.vendor.calls)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    line = [sys.executable, "-m", "ninfer", "status", "--json"]
    done = subprocess.run(line, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["lines"]) == machines
    assert [kind for kind, _ in scene.vendor.calls[calls:]] == ["list"]
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < 0.7
