"""Every fault at every call to the vendor, once and for good: nothing bills that nobody knows."""

from collections import Counter
from collections.abc import Callable

import pytest

from ninfer.errors import FleetError
from ninfer.fleet.contract import Stage
from tests.fleet.conftest import Scene
from tests.fleet.scene import VERBS, make, reap_all
from tests.fleet.wire import FAULTS, Fault

# What is there before a verb, and how many calls it makes on a good day.
SETTING: dict[str, tuple[str, ...]] = {
    "create": (),
    "down": ("create",),
    "up": ("create", "down"),
    "destroy": ("create",),
    "reap": (),
}


def prepare(scene: Scene, verb: str) -> None:
    for earlier in SETTING[verb]:
        VERBS[earlier](scene.fleet)
    if verb == "reap":
        make(scene.fleet, keep_on_failure=False)
        row = scene.fleet.store.named("box")
        scene.fleet.store.change(row, "as a killed create leaves it", stage=Stage.RENTED)
    scene.wire.count = 0


def outcome(scene: Scene, verb: str) -> str:
    """Run the verb as a command would; the name of the error, or `ok`."""
    try:
        VERBS[verb](scene.reopened())
    except FleetError as error:
        return type(error).__name__
    return "ok"


def check_books(scene: Scene, verb: str, result: str) -> None:
    """What must hold whatever happened, and after the next `reap` on a good day."""
    assert scene.unknown() == []
    rows = scene.fleet.store.contracts()
    alive = scene.vendor.alive()
    if verb == "create" and result not in ("ok", "killed", "OutcomeUnknownError"):
        assert alive == [], f"{result} and yet {len(alive)} machines bill"
    if verb == "create" and result == "ok":
        assert len(alive) == 1 and [row.stage for row in rows] == [Stage.READY]
    if verb in ("destroy", "reap") and result == "ok":
        assert alive == [] or verb == "reap"
    scene.wire.fault = lambda number, kind: None
    fleet = scene.reopened()
    scene.vendor.clock.sleep(200)  # a list may lack a new machine for a while
    reap_all(fleet)
    left = {row.machine_id for row in fleet.store.contracts()}
    assert {str(machine.id) for machine in scene.vendor.alive()} == left
    assert all(row.stage in (Stage.READY, Stage.STOPPED) for row in fleet.store.contracts())
    paid = sum(row.spent for row in fleet.store.contracts(closed=True))
    assert scene.vendor.bill() <= paid + 0.05 * 1.5, "the records show less than the vendor bills"


def calls_of(scene_of: Callable[[], Scene], verb: str) -> int:
    scene = scene_of()
    prepare(scene, verb)
    assert outcome(scene, verb) == "ok"
    return scene.wire.count


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("verb", SETTING)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
def test_fault_at_every_call(
    scenes: Callable[[], Scene], verb: str, fault: Fault, lasting: bool
) -> None:
    results: Counter[str] = Counter()
    for place in range(calls_of(scenes, verb)):
        scene = scenes()
        prepare(scene, verb)

        def at(number: int, kind: str, place: int = place) -> Fault | None:
            hit = number >= place if lasting else number == place
            return fault if hit else None

        scene.wire.fault = at
        result = outcome(scene, verb)
        check_books(scene, verb, result)
        results[result] += 1
    print(verb, fault.name, lasting, dict(results))
