"""A fault at every command that a provision sends, and kill -9 there; then a rerun serves.

A link that breaks before or after a command took effect is healed within the same call. A process
that dies anywhere leaves a machine that the next one brings to the same end, with one server.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ninfer.errors import FleetError, HostBrokenError, VerificationError
from ninfer.fleet.creating import create
from ninfer.fleet.fleet import Fleet
from ninfer.fleet.plans import Plan
from ninfer.fleet.provisioning import installer, provision
from tests.fleet.conftest import Scene
from tests.fleet.scene import creation, make
from tests.fleet.standin import (
    Around,
    PacedClock,
    ShellBox,
    end_server,
    free_port,
    make_kit,
    make_plan,
)
from tests.fleet.test_fleet_faults import check_books
from tests.fleet.test_fleet_provision import servers

KINDS = ("break before", "break after", "hang after", "kill before", "kill after")


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[Callable[[], Path]]:
    """Makes one machine after another."""
    made: list[Path] = []

    def make_home() -> Path:
        made.append(tmp_path / f"home-{len(made)}")
        made[-1].mkdir()
        return made[-1]

    yield make_home
    for home in made:
        end_server(home)


def on(scene: Scene, home: Path, around: Around | None = None) -> Fleet:
    def connect(row: object, shot: object) -> ShellBox:
        return ShellBox(home, around)

    return replace(scene.fleet, clock=PacedClock(scene.vendor.clock), connect=connect)


def fault_at(place: int, kind: str) -> Around:
    """The fault once, at a command counted from the first that is sent after this."""
    start = ShellBox.count
    what, _, moment = kind.partition(" ")

    def around(number: int, when: str, command: str) -> str:
        if number - start != place or when != moment:
            return ""
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return what

    return around


def killed(scene: Scene, home: Path, plan: Plan, place: int, kind: str) -> bool:
    """Provision in a process that dies there; False when it came to its end before."""
    row = scene.fleet.store.named("box")
    child = os.fork()
    if not child:
        status = 1
        try:
            # The records' connection belongs to the parent, so the child opens its own.
            fleet = replace(scene.fleet, say=lambda text: None)
            store = type(fleet.store)(fleet.store.folder, fleet.clock)
            fleet = replace(on(scene, home, fault_at(place, kind)), store=store)
            provision(fleet, row, plan)
            status = 0
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    assert ended in (0, signal.SIGKILL), ended
    return ended == signal.SIGKILL


def try_at(scene: Scene, home: Path, plan: Plan, place: int, kind: str) -> bool:
    """One point of the table; False when there are not so many commands."""
    row = scene.fleet.store.named("box")
    if kind.startswith("kill"):
        if not killed(scene, home, plan, place, kind):
            return False
        record = provision(on(scene, home), row, plan)
    else:
        start = ShellBox.count
        record = provision(on(scene, home, fault_at(place, kind)), row, plan)
        if ShellBox.count - start <= place:
            return False
    assert record.output_tokens == 1 and servers(home) == 1
    runs = (home / ".ninfer" / "serve.log").read_text().count("starting")
    assert runs == 1, "one server, started once"
    return True


def try_all(scene: Scene, homes: Callable[[], Path], folder: Path, kind: str, places: range) -> int:
    make(scene.fleet)
    kit, port = make_kit(folder), free_port()
    tried = 0
    for place in places:
        home = homes()
        more = try_at(scene, home, make_plan(kit, port), place, kind)
        end_server(home)
        tried += more
        if not more:
            break
    assert scene.unknown() == [] and len(scene.vendor.alive()) == 1
    return tried


@pytest.mark.parametrize(("kind", "place"), [("break after", 8), ("kill after", 12)])
def test_fault_at_a_command_of_a_provision(
    scene: Scene, homes: Callable[[], Path], tmp_path: Path, kind: str, place: int
) -> None:
    assert try_all(scene, homes, tmp_path, kind, range(place, place + 1)) == 1


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_fault_at_every_command_of_a_provision(
    scene: Scene,
    homes: Callable[[], Path],
    tmp_path: Path,
    kind: str,
    record_property: Callable[[str, object], None],
) -> None:
    tried = try_all(scene, homes, tmp_path, kind, range(1000))
    assert tried > 20
    record_property("count", tried)
    record_property("unit", f"provisions with '{kind}' at one command, all of which serve")


@pytest.mark.parametrize(
    ("error", "left"),
    [(HostBrokenError("no", category="disk"), 0), (VerificationError("other bytes"), 0)],
)
def test_create_ends_a_machine_that_cannot_be_made_to_serve(
    scene: Scene, tmp_path: Path, error: FleetError, left: int
) -> None:
    """A machine's own fault is tried elsewhere, a bad kit is not; nothing bills afterwards."""

    def install(fleet: Fleet, row: object, shot: object) -> None:
        raise error

    with pytest.raises(type(error)):
        create(scene.fleet, scene.fleet.providers["vast"], creation(install=install))
    assert len(scene.vendor.alive()) == left
    assert scene.vendor.rents == (3 if isinstance(error, HostBrokenError) else 1)
    check_books(scene, "create", type(error).__name__)


def test_create_with_a_kit_serves(scene: Scene, homes: Callable[[], Path], tmp_path: Path) -> None:
    """The hook in its place: the machine is armed before anything is put on it."""
    home = homes()
    folder = home / ".ninfer"
    folder.mkdir()
    (folder / "armed").write_text("yes\n")
    (folder / "beat").write_text(f"{int(time.time())}\n")
    fleet = on(scene, home)
    plan = make_plan(make_kit(tmp_path), free_port())
    create(fleet, fleet.providers["vast"], creation(install=installer(plan)))
    assert servers(home) == 1 and len(scene.vendor.alive()) == 1
