"""kill -9 of the command at every call to the vendor and at every write to the records."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess

import pytest

from ninfer.fleet.contract import Stage
from tests.fleet.conftest import Scene
from tests.fleet.scene import close_fleet, open_fleet, reap_all, run_verb
from tests.fleet.test_fleet_faults import SETTING, check_books, prepare

MOMENTS = ("before", "after", "answered")


@pytest.fixture(scope="module")
def context() -> ForkServerContext:
    """Processes that start in milliseconds, from one that has imported everything."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["tests.fleet.scene"])
    return made


def start(context: ForkServerContext, scene: Scene, verb: str, commit: int = -1) -> BaseProcess:
    arguments = (verb, str(scene.folder), scene.wire.server_port, commit)
    process = context.Process(target=run_verb, args=arguments)
    process.start()
    return process


def finish(process: BaseProcess) -> int | None:
    process.join(240)
    assert process.exitcode is not None, "the command hangs"
    return process.exitcode


def check_killed(scene: Scene, verb: str) -> None:
    """Before anything else runs, and after the next `reap`."""
    check_books(scene, verb, "killed")
    if verb == "create":
        left = scene.fleet.store.contracts()
        assert all(row.stage is Stage.READY for row in left) and len(left) <= 1


def kill_at_calls(
    context: ForkServerContext, scenes: Callable[[], Scene], verb: str, moment: str
) -> int:
    """Kill at one call after another until there are no more; returns how many died."""
    place, killed = 0, 0
    while True:
        scene = scenes()
        prepare(scene, verb)
        process: list[BaseProcess] = []

        def kill(number: int, kind: str, when: str, place: int = place, process=process) -> None:
            if number == place and when == moment and process:
                os.kill(process[0].pid or 0, signal.SIGKILL)

        scene.wire.around = kill
        process.append(start(context, scene, verb))
        status = finish(process[0])
        scene.wire.around = lambda number, kind, when: None
        if status == 0 and scene.wire.count <= place:
            break  # there is no such call: all were tried
        killed += status == -signal.SIGKILL
        check_killed(scene, verb)
        place += 1
    assert killed >= place - 1 > 0  # the last answer may come too late to kill anybody
    return killed


def kill_at_writes(context: ForkServerContext, scenes: Callable[[], Scene], verb: str) -> int:
    """Kill just before and just after each commit in turn; returns how many died."""
    place = 0
    while True:
        scene = scenes()
        prepare(scene, verb)
        status = finish(start(context, scene, verb, place))
        if status == 0:
            break
        assert status == -signal.SIGKILL
        check_killed(scene, verb)
        place += 1
    assert place > 2
    return place


def test_create_killed_at_every_call(
    context: ForkServerContext, scenes: Callable[[], Scene]
) -> None:
    kill_at_calls(context, scenes, "create", "after")


@pytest.mark.parametrize("verb", ["create", "destroy"])
def test_killed_at_every_write(
    context: ForkServerContext, scenes: Callable[[], Scene], verb: str
) -> None:
    kill_at_writes(context, scenes, verb)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("verb", SETTING)
def test_killed_everywhere(
    context: ForkServerContext,
    scenes: Callable[[], Scene],
    verb: str,
    record_property: Callable[[str, object], None],
) -> None:
    killed = kill_at_writes(context, scenes, verb)
    killed += sum(kill_at_calls(context, scenes, verb, moment) for moment in MOMENTS)
    record_property("count", killed)
    record_property("unit", f"kills during {verb}, none leaves a machine that nobody knows")


def test_a_second_command_waits_for_nobody(context: ForkServerContext, scene: Scene) -> None:
    """While one process creates, a `reap` of another leaves its machine alone."""
    seen: list[int] = []
    clock = scene.vendor.clock

    def look(number: int, kind: str, when: str) -> None:
        if kind == "show" and when == "after" and not seen:
            seen.append(number)
            # SQLite belongs to a thread; this is the server's.
            other = open_fleet(scene.folder, scene.wire.root, clock, scene.vendor.box, print)
            reap_all(other)
            close_fleet(other)
            seen.extend(machine.id for machine in scene.vendor.alive())

    scene.wire.around = look
    assert finish(start(context, scene, "create")) == 0
    assert len(seen) == 2 and len(scene.vendor.alive()) == 1
    assert scene.fleet.store.named("box").stage is Stage.READY
