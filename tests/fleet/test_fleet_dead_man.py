"""The dead-man's script in a real shell against the vendor: it ends its machine, and only then."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ninfer.errors import VerificationError
from ninfer.fleet.box import Ran
from ninfer.fleet.dead_man import FOLDER, MOST_CHARACTERS, DeadMan, check_armed, renew
from ninfer.fleet.ssh_keys import host_keys_in
from tests.fleet.conftest import Scene
from tests.fleet.vendor import Machine, offer

Starting = Callable[..., Machine]


class ShellBox:
    """This machine's shell, with the dead-man's folder moved."""

    def __init__(self, folder: Path, clock: "ShellClock | None" = None) -> None:
        self.folder = folder
        self._environ = {"PATH": clock.path} if clock else None

    def run(self, command: str, *, stdin: str | bytes = "", timeout: float = 60.0) -> Ran:
        moved = command.replace(FOLDER, str(self.folder))
        done = subprocess.run(
            ["sh", "-c", moved], capture_output=True, text=True, timeout=timeout, env=self._environ
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def close(self) -> None:
        pass


class ShellClock:
    """The time that `date +%s` tells in a shell with this path: only the test moves it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._file, self.now = folder / "now", int(time.time())
        self.path = f"{folder}:{os.environ['PATH']}"
        program = folder / "date"
        real = shutil.which("date")
        program.write_text(
            f'#!/bin/sh\n[ "$1" = +%s ] && exec cat {self._file}\nexec {real} "$@"\n'
        )
        program.chmod(0o755)
        self.move(0)

    def move(self, seconds: int) -> None:
        self.now += seconds
        new = self._file.with_suffix(".new")
        new.write_text(f"{self.now}\n")
        new.replace(self._file)


@pytest.fixture
def clock(tmp_path: Path) -> ShellClock:
    return ShellClock(tmp_path / "clock")


@pytest.fixture
def starting(scene: Scene, tmp_path: Path, clock: ShellClock) -> Iterator[Starting]:
    """Starts a machine whose script runs here, by the time of `clock`."""
    groups: list[int] = []
    scene.vendor.dead_man = False

    def start(machine: Machine | None = None, *, key: str = "", **seconds: float) -> Machine:
        if machine is None:
            body = {"label": "x", "disk": 20, "onstart": ""}
            machine = scene.vendor.make(offer(300 + len(scene.vendor.machines)), body)
        values = {"life": 60, "idle": 60, "grace": 60, **seconds}
        script = DeadMan(scene.wire.root, **values, pause=0.2, folder=str(tmp_path / "box"))
        environ = {
            "PATH": clock.path,
            "CONTAINER_ID": str(machine.id),
            "CONTAINER_API_KEY": key or f"own-{machine.id}",
        }
        # setsid would take the loop out of a group that we can end.
        text = script.script().replace("setsid sh", "sh")
        started = subprocess.Popen(["sh", "-c", text], env=environ, start_new_session=True)
        groups.append(started.pid)
        started.wait(60)
        return machine

    yield start
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue


def until(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.05)


def files(tmp_path: Path, name: str) -> str:
    path = tmp_path / "box" / name
    return path.read_text().strip() if path.exists() else ""


def look(tmp_path: Path, clock: ShellClock) -> None:
    """Wait until the loop has looked at the present time and found nothing to do."""
    until(lambda: files(tmp_path, "beat") == str(clock.now))


def armed(tmp_path: Path, clock: ShellClock) -> ShellBox:
    """The machine, once its dead-man is armed."""
    look(tmp_path, clock)
    box = ShellBox(tmp_path / "box", clock)
    check_armed(box, lambda seconds: None)
    return box


def test_box_that_nobody_renews_ends_itself(
    scene: Scene, starting: Starting, tmp_path: Path, clock: ShellClock
) -> None:
    """Scenario 6 with the real script: the laptop never came back."""
    machine = starting(grace=2)
    look(tmp_path, clock)
    clock.move(1)
    look(tmp_path, clock)
    assert machine.ended is None
    clock.move(1)
    until(lambda: machine.ended is not None)
    assert [kind for kind, _ in scene.vendor.calls] == ["destroy"] * len(scene.vendor.calls)


def test_renewed_box_lives_to_its_end(
    starting: Starting, tmp_path: Path, clock: ShellClock
) -> None:
    machine = starting(grace=2, life=6)
    renew(armed(tmp_path, clock), 1000)
    clock.move(5)
    look(tmp_path, clock)
    assert machine.ended is None, "the lease was renewed"
    clock.move(1)
    until(lambda: machine.ended is not None)  # its life is over all the same


def test_a_new_end_holds(starting: Starting, tmp_path: Path, clock: ShellClock) -> None:
    machine = starting(grace=2, life=2)
    renew(armed(tmp_path, clock), 1000, 1000)
    clock.move(999)
    look(tmp_path, clock)
    assert machine.ended is None
    clock.move(1)
    until(lambda: machine.ended is not None)


def test_idle_server_ends_its_box_and_requests_keep_it(
    starting: Starting, tmp_path: Path, clock: ShellClock
) -> None:
    """Scenario 7: what counts is the age of the file that a request touches."""
    machine = starting(idle=2)
    armed(tmp_path, clock)
    active = tmp_path / "box" / "active"
    active.touch()
    for _ in range(6):
        os.utime(active, (clock.now, clock.now))
        clock.move(1)
        look(tmp_path, clock)
        assert machine.ended is None
    clock.move(1)
    until(lambda: machine.ended is not None)


def test_start_after_a_long_stop_has_its_grace(
    starting: Starting, tmp_path: Path, clock: ShellClock
) -> None:
    (tmp_path / "box").mkdir()
    for name in ("lease", "end"):
        (tmp_path / "box" / name).write_text("1000\n")
    machine = starting(grace=3)
    look(tmp_path, clock)
    clock.move(2)
    look(tmp_path, clock)
    assert machine.ended is None
    clock.move(1)
    until(lambda: machine.ended is not None)


def test_reboot_keeps_a_later_lease(starting: Starting, tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    far = str(int(time.time()) + 5000)
    for name in ("lease", "end"):
        (tmp_path / "box" / name).write_text(far)
    starting(grace=1)
    until(lambda: files(tmp_path, "beat") != "")
    assert files(tmp_path, "lease") == far and files(tmp_path, "end") == far


def test_damaged_lease_ends_the_box(starting: Starting, tmp_path: Path) -> None:
    machine = starting()
    until(lambda: files(tmp_path, "beat") != "")
    (tmp_path / "box" / "lease").write_text("rubbish")
    until(lambda: machine.ended is not None)


def test_it_goes_on_until_the_vendor_listens(scene: Scene, starting: Starting) -> None:
    scene.vendor.deaf_destroys = 3
    machine = starting(grace=0)
    until(lambda: machine.ended is not None)
    assert len(scene.vendor.calls) == 4


def test_its_key_is_on_no_command_line(starting: Starting, tmp_path: Path) -> None:
    machine = starting()
    until(lambda: files(tmp_path, "armed") != "")
    secret = f"own-{machine.id}".encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert secret not in path.read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    for path in (tmp_path / "box").iterdir():
        assert secret not in path.read_bytes()
    assert (tmp_path / "box").stat().st_mode & 0o077 == 0


def test_without_a_key_it_says_that_it_is_not_armed(starting: Starting, tmp_path: Path) -> None:
    starting(key=" ")
    until(lambda: files(tmp_path, "armed") != "")
    (tmp_path / "box" / "armed").write_text("no key in the container\n")
    with pytest.raises(VerificationError, match="no key in the container"):
        check_armed(ShellBox(tmp_path / "box"), lambda seconds: None)


def test_dead_loop_is_not_armed(starting: Starting, tmp_path: Path) -> None:
    starting()
    until(lambda: files(tmp_path, "beat") != "")
    box = tmp_path / "box"
    dead = tmp_path / "dead"
    dead.mkdir()
    for name in ("armed", "beat"):
        (dead / name).write_text((box / name).read_text() if name == "armed" else "1000\n")
    with pytest.raises(VerificationError, match="cannot end itself"):
        check_armed(ShellBox(dead), lambda seconds: None)


def test_script_fits_the_vendors_limit_and_prints_host_keys() -> None:
    script = DeadMan("https://console.vast.ai", 8 * 3600, 1200).script()
    assert len(script) <= MOST_CHARACTERS
    key = "ssh-ed25519 " + "B" * 68
    log = f"start\nninfer-hostkey {key} root@x\nninfer-hostkey rubbish\nend"
    assert host_keys_in(log) == [key]
