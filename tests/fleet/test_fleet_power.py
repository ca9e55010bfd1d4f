"""`up`, `down`, `destroy` and `reap`: what they do, what they say, what goes on billing."""

import pytest

from ninfer.errors import (
    BudgetError,
    ExistsError,
    NoInstanceError,
    OutcomeUnknownError,
    ProviderError,
    TimeLimitError,
    UsageError,
)
from ninfer.fleet.bad_hosts import bad_hosts
from ninfer.fleet.contract import Stage, make_label
from ninfer.fleet.locks import machine_lock
from ninfer.fleet.power import down, end, find, life_left, up
from ninfer.fleet.provider import BILLING, Billing, Phase
from ninfer.fleet.report import report
from ninfer.fleet.vast_shapes import PHASES, read_snapshot
from tests.fleet.conftest import Scene
from tests.fleet.scene import CAPS, make, reap_all
from tests.fleet.vendor import KEY, offer
from tests.fleet.wire import BY_NAME


def test_down_up_destroy(scene: Scene) -> None:
    row = make(scene.fleet)
    before = scene.fleet.providers["vast"].get(row.machine_id)
    row, shot = down(scene.fleet, row)
    assert row.stage is Stage.STOPPED and shot.phase is Phase.STOPPED
    assert row.rate == pytest.approx(80 * 0.1 / 720), "the disk bills on"
    row, after = up(scene.fleet, row, 3600.0)
    assert before and after.ssh != before.ssh, "the address is another after each start"
    assert row.stage is Stage.READY and row.rate == pytest.approx(row.price)
    (machine,) = scene.vendor.alive()
    assert abs(machine.end - scene.vendor.clock.now() - 3600) < 30
    row = end(scene.fleet, row)
    assert not row.is_open and scene.vendor.alive() == []
    assert row.spent == pytest.approx(scene.vendor.bill() + 25 * 0.002, abs=0.02)


def test_up_on_a_taken_gpu_is_put_back(scene: Scene) -> None:
    """Scenario 8, M14: it must not start billing when the GPU is free hours later."""
    row, _ = down(scene.fleet, make(scene.fleet))
    scene.vendor.gpu_taken = True
    with pytest.raises(TimeLimitError, match=r"taken by another.*for its disk.*destroy"):
        up(scene.fleet, row, 3600.0)
    (machine,) = scene.vendor.alive()
    assert not machine.wants_running
    assert scene.fleet.store.named("box").stage is Stage.STOPPED


def test_up_that_cannot_be_put_back_is_shouted(scene: Scene) -> None:
    row, _ = down(scene.fleet, make(scene.fleet))
    scene.vendor.gpu_taken = True
    scene.vendor.stop_hangs = True
    stop = scene.vendor._view = scene.vendor.view

    def never_stops(machine: object) -> object:
        return {**stop(machine), "actual_status": "loading"}

    scene.vendor.view = never_stops  # neither up nor down
    with pytest.raises(OutcomeUnknownError, match="told to run"):
        up(scene.fleet, row, 3600.0)


def test_down_that_does_not_stop_says_that_it_bills(scene: Scene) -> None:
    row = make(scene.fleet)
    scene.vendor.stop_hangs = True
    with pytest.raises(TimeLimitError, match="bills on"):
        down(scene.fleet, row)
    assert bad_hosts(scene.fleet.store) == [], "a stop does not blame the host"


def test_destroy_that_is_acknowledged_without_effect_is_repeated(scene: Scene) -> None:
    row = make(scene.fleet)
    scene.vendor.deaf_destroys = 3
    assert not end(scene.fleet, row).is_open
    assert scene.vendor.alive() == []


def test_destroy_that_fails_for_good_is_unknown_and_kept(scene: Scene) -> None:
    row = make(scene.fleet)
    scene.vendor.deaf_destroys = 99
    with pytest.raises(OutcomeUnknownError, match=rf"machine {row.machine_id}.*may still bill"):
        end(scene.fleet, row)
    scene.vendor.deaf_destroys = 0
    assert len(reap_all(scene.fleet).ended) == 1 and scene.vendor.alive() == []


def test_destroy_is_not_confirmed_without_the_list(scene: Scene) -> None:
    row = make(scene.fleet)
    scene.wire.fault = lambda number, kind: BY_NAME["410"] if kind == "list" else None
    with pytest.raises(OutcomeUnknownError):
        end(scene.fleet, row)
    assert scene.fleet.store.named("box").stage is Stage.ENDING


def test_machine_that_somebody_ended_by_hand(scene: Scene) -> None:
    """M7: destroy is idempotent, other verbs say that it is gone."""
    row = make(scene.fleet)
    scene.vendor.machines[int(row.machine_id)].ended = scene.vendor.clock.now()
    assert not end(scene.fleet, row).is_open
    row = make(scene.fleet)
    scene.vendor.machines[int(row.machine_id)].ended = scene.vendor.clock.now()
    with pytest.raises(NoInstanceError, match="no more"):
        down(scene.fleet, row)
    assert scene.fleet.store.contracts() == []


def test_two_commands_do_not_work_on_one_machine(scene: Scene) -> None:
    """Scenario 13."""
    row = make(scene.fleet)
    with (
        machine_lock(scene.fleet.store.folder, row.key, row.name),
        pytest.raises(ExistsError, match="process"),
    ):
        end(scene.fleet, row)
    assert len(scene.vendor.alive()) == 1
    with pytest.raises(ExistsError, match="box"):
        make(scene.fleet)
    assert scene.vendor.rents == 1


def test_life_after_up_is_what_the_budget_leaves(scene: Scene) -> None:
    row = make(scene.fleet)
    scene.vendor.clock.sleep(6 * 3600)
    report(scene.fleet, CAPS)
    row = scene.fleet.store.named("box")
    assert life_left(scene.fleet, row, CAPS) < CAPS.lifetime + 1
    scene.vendor.clock.sleep(9 * 3600)
    with pytest.raises(BudgetError, match="raise --budget"):
        life_left(scene.fleet, row, CAPS)


def test_machine_of_the_account_by_its_number(scene: Scene) -> None:
    """NINFER_INSTANCE of the original: any machine of the account."""
    body = {"label": "made elsewhere", "disk": 20, "onstart": ""}
    machine = scene.vendor.make(offer(300), body)
    machine.lease = machine.end = scene.vendor.clock.now() + 9e9
    row = find(scene.fleet, str(machine.id))
    assert reap_all(scene.fleet).ended == (), "one that was asked for by name is no orphan"
    end(scene.fleet, row)
    assert scene.vendor.alive() == []
    with pytest.raises(NoInstanceError):
        find(scene.fleet, "123")


def test_name_may_be_left_out_while_there_is_one(scene: Scene) -> None:
    with pytest.raises(NoInstanceError):
        find(scene.fleet, "")
    make(scene.fleet)
    assert find(scene.fleet, "").name == "box"
    make(scene.fleet, "two")
    with pytest.raises(UsageError, match="box, two"):
        find(scene.fleet, "")


def put(scene: Scene, label: str, number: int = 300) -> int:
    machine = scene.vendor.make(offer(number), {"label": label, "disk": 20, "onstart": ""})
    machine.lease = machine.end = scene.vendor.clock.now() + 9e9
    return machine.id


def test_reap_ends_ours_and_leaves_others(scene: Scene) -> None:
    ours = put(scene, make_label(scene.fleet.store.id, "lost", "0123456789ab"))
    foreign = put(scene, make_label("ffffffff", "theirs", "0123456789ab"))
    stranger = put(scene, "ninfer-5090-nvfp4-27b")
    make(scene.fleet)
    done = reap_all(scene.fleet)
    assert len(done.ended) == 1 and str(ours) in done.ended[0]
    assert [shot.id for shot in done.foreign] == [str(foreign)]
    alive = {machine.id for machine in scene.vendor.alive()}
    assert ours not in alive and {foreign, stranger} < alive and len(alive) == 3
    reap_all(scene.fleet, foreign=True)
    assert {machine.id for machine in scene.vendor.alive()} == alive - {foreign}


def test_reap_ends_what_outlived_its_time_or_budget(scene: Scene) -> None:
    scene.vendor.dead_man = False  # the box's own end does not come
    row = make(scene.fleet)
    assert reap_all(scene.fleet).ended == ()
    scene.vendor.clock.sleep(row.ends - scene.vendor.clock.now() + 60)
    assert len(reap_all(scene.fleet).ended) == 1 and scene.vendor.alive() == []


def test_reap_goes_on_after_one_that_cannot_be_ended(scene: Scene) -> None:
    for name in ("one", "two"):
        row = make(scene.fleet, name)
        scene.fleet.store.change(row, "as a killed create leaves it", stage=Stage.RENTED)
    scene.vendor.deaf_destroys = 10
    done = reap_all(scene.fleet)
    assert len(done.ended) == 1 and [name for name, _ in done.failed] == ["one"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_status_takes_one_list(scene: Scene, count: int) -> None:
    """Must-show 5."""
    for number in range(count):
        make(scene.fleet, f"box-{number}")
    scene.vendor.calls.clear()
    found = report(scene.fleet, CAPS)
    assert len(found.lines) == count and found.problems == ()
    assert [kind for kind, _ in scene.vendor.calls] == ["list"]
    assert found.month_spent == pytest.approx(sum(line.spent for line in found.lines))


def test_status_with_pages(scene: Scene) -> None:
    for number in range(60):
        put(scene, f"stranger {number}", 300 + number)
    make(scene.fleet)
    scene.vendor.calls.clear()
    (line,) = report(scene.fleet, CAPS).lines
    assert line.state == "running" and len(scene.vendor.calls) == 3


def test_status_of_a_broken_vendor_shows_the_records(scene: Scene) -> None:
    make(scene.fleet)
    scene.wire.fault = lambda number, kind: BY_NAME["503 page"]
    found = report(scene.fleet, CAPS)
    (line,) = found.lines
    assert line.state == "unknown" and line.rate == pytest.approx(0.3 + 80 * 0.1 / 720)
    assert "503" in found.problems[0]


def test_status_shows_stopped_disks_orphans_and_foreign(scene: Scene) -> None:
    down(scene.fleet, make(scene.fleet))
    put(scene, make_label(scene.fleet.store.id, "lost", "0123456789ab"))
    put(scene, make_label("ffffffff", "theirs", "0123456789ab"))
    found = report(scene.fleet, CAPS)
    stopped, orphan = found.lines
    assert stopped.state == "exited" and stopped.rate == pytest.approx(80 * 0.1 / 720)
    assert orphan.name.startswith("orphan-") and orphan.rate
    assert [line.stage for line in found.foreign] == ["other records"]
    put(scene, "made by hand", 301)
    (other,) = report(scene.fleet, CAPS).others
    assert other.name == "made by hand" and other.rate


def test_status_notices_a_machine_that_ended_itself(scene: Scene) -> None:
    row = make(scene.fleet)
    scene.vendor.clock.sleep(row.ends - scene.vendor.clock.now() + 3600)
    assert scene.vendor.alive() == []
    assert report(scene.fleet, CAPS).lines == ()
    (closed,) = scene.fleet.store.contracts(closed=True)
    assert "ended itself" in closed.note
    # Counted to its end, not to when we looked.
    assert closed.spent == pytest.approx(scene.vendor.bill() + 25 * 0.002, rel=0.05)


@pytest.mark.parametrize(
    ("status", "phase", "billing"),
    [
        (None, Phase.REQUESTED, Billing.DISK),
        ("created", Phase.STARTING, Billing.GPU),
        ("loading", Phase.PULLING, Billing.DISK),
        ("running", Phase.RUNNING, Billing.GPU),
        ("frozen", Phase.FROZEN, Billing.GPU),
        ("stopped", Phase.STOPPED, Billing.DISK),
        ("exited", Phase.STOPPED, Billing.DISK),
        ("rebooting", Phase.STARTING, Billing.GPU),
        ("unknown", Phase.UNKNOWN, Billing.GPU),
        ("offline", Phase.OFFLINE, Billing.NOTHING),
        ("a new word", Phase.UNKNOWN, Billing.GPU),
        (17, Phase.UNKNOWN, Billing.GPU),
    ],
)
def test_what_each_state_costs(status: object, phase: Phase, billing: Billing) -> None:
    """M19."""
    shot = read_snapshot({"id": 1, "actual_status": status})
    assert shot and shot.phase is phase and shot.billing is billing
    assert set(BILLING) == set(Phase) and set(PHASES.values()) <= set(Phase)


def test_key_is_in_no_address_and_no_record(scene: Scene) -> None:
    make(scene.fleet)
    assert not any(KEY in body for body in scene.wire.bodies)
    for path in scene.folder.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()
    assert KEY not in repr(scene.fleet) and not any(KEY in text for text in scene.said)


def test_bad_key_is_known_by_its_body_whatever_the_status(scene: Scene) -> None:
    """The vendor sends 404 for a bad key at the list."""
    scene.vendor.answer, answer = (
        lambda method, path, query, body, key: answer(method, path, query, body, "wrong"),
        scene.vendor.answer,
    )
    with pytest.raises(Exception, match="VAST_API_KEY") as caught:
        make(scene.fleet)
    assert not isinstance(caught.value, ProviderError) and scene.vendor.rents == 0
