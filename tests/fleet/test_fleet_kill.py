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
from tests.fleet.scene import reap_all, run_verb
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
    process.join(60)
    assert process.exitcode is not None, "the command hangs"
    return process.exitcode


def check_killed(scene: Scene, verb: str) -> None:
    """Before anything else runs, and after the next `reap`."""
    check_books(scene, verb, "killed")
    if verb == "create":
        left = scene.fleet.store.contracts()
        assert all(row.stage is Stage.READY for row in left) and len(left) <= 1


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("verb", SETTING)
def test_killed_at_every_call(
    context: ForkServerContext, scenes: Callable[[], Scene], verb: str, moment: str
) -> None:
    place, killed = 0, 0
    while True:
        scene = scenes()
        prepare(scene, verb)
        began = scene.wire.count
        process: list[BaseProcess] = []

        def kill(number: int, kind: str, when: str, place: int = place, process=process) -> None:
            if number == place and when == moment and process:
                os.kill(process[0].pid or 0, signal.SIGKILL)

        scene.wire.around = kill
        process.append(start(context, scene, verb))
        status = finish(process[0])
        scene.wire.around = lambda number, kind, when: None
        assert began == 0
        if status == 0 and scene.wire.count <= place:
            break  # there is no such call: all were tried
        killed += status == -signal.SIGKILL
        check_killed(scene, verb)
        place += 1
    assert killed >= place - 1 > 0  # the last answer may come too late to kill anybody


@pytest.mark.parametrize("verb", SETTING)
def test_killed_at_every_write(
    context: ForkServerContext, scenes: Callable[[], Scene], verb: str
) -> None:
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


def test_a_second_command_waits_for_nobody(context: ForkServerContext, scene: Scene) -> None:
    """While one process creates, a `reap` of another leaves its machine alone."""
    seen: list[int] = []

    def look(number: int, kind: str, when: str) -> None:
        if kind == "show" and when == "after" and not seen:
            seen.append(number)
            reap_all(scene.fleet)
            seen.extend(machine.id for machine in scene.vendor.alive())

    scene.wire.around = look
    assert finish(start(context, scene, "create")) == 0
    assert len(seen) == 2 and len(scene.vendor.alive()) == 1
    assert scene.fleet.store.named("box").stage is Stage.READY
