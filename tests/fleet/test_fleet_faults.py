"""Every fault at every call to the vendor, once and for good: nothing bills that nobody knows."""

import socket
from collections import Counter
from collections.abc import Callable

import pytest

from ninfer.errors import FleetError, ProviderError
from ninfer.fleet.contract import Stage
from ninfer.fleet.vast_http import VastHttp
from tests.fleet.conftest import Scene
from tests.fleet.scene import VERBS, make, reap_all
from tests.fleet.vendor import KEY
from tests.fleet.wire import BY_NAME, FAULTS, Fault

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


def try_everywhere(scenes: Callable[[], Scene], verb: str, fault: Fault, lasting: bool) -> int:
    """The fault at each call of the verb in turn; returns the number of calls."""
    calls = calls_of(scenes, verb)
    results: Counter[str] = Counter()
    for place in range(calls):
        scene = scenes()
        prepare(scene, verb)

        def at(number: int, kind: str, place: int = place) -> Fault | None:
            hit = number >= place if lasting else number == place
            return fault if hit else None

        scene.wire.fault = at
        result = outcome(scene, verb)
        check_books(scene, verb, result)
        results[result] += 1
    assert sum(results.values()) == calls > 2
    return calls


# What a run of the whole suite has time for; the soak test has all.
SHARE = [
    *(("create", name) for name in ("429 text", "reset after", "garbage after")),
    ("up", "500 after"),
    ("down", "reset after"),
    ("destroy", "empty after"),
    ("reap", "404 page"),
]


@pytest.mark.parametrize(("verb", "name"), SHARE)
def test_fault_once_at_every_call(scenes: Callable[[], Scene], verb: str, name: str) -> None:
    try_everywhere(scenes, verb, BY_NAME[name], lasting=False)


@pytest.mark.parametrize(("verb", "name"), [("create", "503 page"), ("destroy", "410")])
def test_fault_for_good_from_every_call_on(
    scenes: Callable[[], Scene], verb: str, name: str
) -> None:
    try_everywhere(scenes, verb, BY_NAME[name], lasting=True)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("verb", SETTING)
def test_every_fault_at_every_call(
    scenes: Callable[[], Scene], verb: str, record_property: Callable[[str, object], None]
) -> None:
    points = 0
    for fault in FAULTS:
        for lasting in (False, True):
            points += try_everywhere(scenes, verb, fault, lasting)
    record_property("count", points)
    record_property("unit", f"faults during {verb}, none leaves a machine that nobody knows")


def test_a_vendor_that_says_nothing_is_not_waited_for(scene: Scene) -> None:
    """A real silence; those of the faults above are announced, so that no slow machine adds one."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        root = f"http://127.0.0.1:{silent.getsockname()[1]}"
        vendor = VastHttp(root, KEY, scene.vendor.clock, timeout=0.1)
        with pytest.raises(ProviderError, match="timed out; nothing was learnt"):
            vendor.ask("search", "GET", "/api/v0/instances/")
        vendor.close()
