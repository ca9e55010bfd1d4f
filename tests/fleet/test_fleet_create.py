"""`create` against the vendor: good days, bad hosts, lost answers, credit, caps."""

import json
import sqlite3
from dataclasses import replace

import pytest

from ninfer.errors import (
    BudgetError,
    ExistsError,
    FleetError,
    HostBrokenError,
    NoOfferError,
    OfferGoneError,
    OutcomeUnknownError,
    ProviderError,
    RefusedError,
    UsageError,
    VerificationError,
)
from ninfer.fleet.bad_hosts import bad_hosts, forget
from ninfer.fleet.contract import Stage
from ninfer.fleet.store import Store
from tests.fleet.conftest import Scene
from tests.fleet.scene import CAPS, PUBLIC, make, need, reap_all
from tests.fleet.vendor import KEY, offer
from tests.fleet.wire import BY_NAME, Fault

CDI = "Error response from daemon: failed to inject CDI devices: unresolvable CDI devices"
BROKEN = ((0.0, None), (5.0, "created"))


def test_a_good_day(scene: Scene) -> None:
    row = make(scene.fleet)
    assert row.stage is Stage.READY and row.offer == "101"
    (machine,) = scene.vendor.alive()
    assert str(machine.id) == row.machine_id and machine.body["label"] == row.label
    assert machine.keys == [PUBLIC]
    assert machine.body["disk"] == 80 and machine.body["env"] == {}
    # The lease that create renewed lasts to the end of the machine's life and no longer.
    assert abs(machine.lease - row.ends) < 60 and abs(machine.end - row.ends) < 60
    assert scene.vendor.rents == 1


@pytest.mark.parametrize("text", [CDI, CDI.replace("Error response", "response").lower()])
def test_host_that_cannot_inject_gpus_is_left_at_once_for_the_next(scene: Scene, text: str) -> None:
    """Scenario 1, M10: with and without the word that the original looked for."""
    scene.vendor.behaviour[601] = (BROKEN, {"created": text})
    began = scene.vendor.clock.now()
    row = make(scene.fleet)
    assert row.offer == "102" and scene.vendor.rents == 2
    assert scene.vendor.clock.now() - began < 180, "a stated failure is not waited out"
    assert len(scene.vendor.alive()) == 1
    (bad,) = bad_hosts(scene.fleet.store)
    assert (bad.machine, bad.category) == ("601", "gpu-injection") and "CDI" in bad.reason.upper()
    both = scene.fleet.store.contracts(closed=True)
    assert [r.stage for r in both] == [Stage.CLOSED, Stage.READY]
    assert all(r.spent > 0 for r in both), "the failed machine's cost is in the books too"


def test_remembered_host_is_not_rented_again_until_forgotten(scene: Scene) -> None:
    scene.vendor.behaviour[601] = (BROKEN, {"created": CDI})
    make(scene.fleet)
    scene.vendor.offers[0]["rentable"] = True
    assert make(scene.fleet, "two").offer == "103"
    forget(scene.fleet.store, "601")
    scene.vendor.behaviour.clear()
    assert make(scene.fleet, "three").offer == "101"


def test_memory_of_a_host_expires_and_grows_with_repetition(scene: Scene) -> None:
    scene.vendor.behaviour[601] = (BROKEN, {"created": CDI})
    spans = []
    for name in ("one", "two"):
        make(scene.fleet, name)
        (bad,) = bad_hosts(scene.fleet.store)
        spans.append(bad.expires - bad.last)
        scene.vendor.clock.sleep(spans[-1] + 1)
        assert bad_hosts(scene.fleet.store) == []
        for row in scene.vendor.offers:
            row["rentable"] = True
    assert spans[0] == 30 * 86400
    make(scene.fleet, "three")


@pytest.mark.parametrize(
    "fault", ["reset after", "silence after", "500 after", "garbage after", "object after"]
)
@pytest.mark.parametrize("hidden", [0.0, 30.0])
def test_lost_answer_of_a_rent_leaves_exactly_one_machine(
    scene: Scene, fault: str, hidden: float
) -> None:
    """Scenario 2, M4: the machine was made, and may be missing from lists for a while."""
    scene.vendor.hidden = hidden
    scene.wire.fault = lambda number, kind: BY_NAME[fault] if kind == "rent" else None
    row = make(scene.fleet)
    assert scene.vendor.rents == 1 and row.stage is Stage.READY
    assert [str(machine.id) for machine in scene.vendor.alive()] == [row.machine_id]


def test_rent_that_never_happened_is_known_after_two_minutes(scene: Scene) -> None:
    lost = [BY_NAME["reset before"]]

    def once(number: int, kind: str) -> Fault | None:
        return lost.pop() if kind == "rent" and lost else None

    scene.wire.fault = once
    began = scene.vendor.clock.now()
    row = make(scene.fleet)  # the next offer
    assert scene.vendor.clock.now() - began > 120
    assert row.offer == "102" and len(scene.vendor.alive()) == 1


def test_unknown_outcome_is_kept_and_blocks_the_name(scene: Scene) -> None:
    rented: list[int] = []

    def faults(number: int, kind: str) -> Fault | None:
        if kind == "rent":
            rented.append(number)
            return BY_NAME["reset after"]
        return BY_NAME["404 page"] if rented and kind == "list" else None

    scene.wire.fault = faults
    with pytest.raises(OutcomeUnknownError, match=r"labelled ninfer\.[0-9a-f]{8}\.box\."):
        make(scene.fleet)
    assert scene.unknown() == [] and len(scene.vendor.alive()) == 1
    scene.wire.fault = lambda number, kind: None
    with pytest.raises(ExistsError, match="box"):
        make(scene.fleet)
    done = reap_all(scene.fleet)
    assert scene.vendor.alive() == [] and len(done.ended) == 1


def test_refusal_that_made_a_machine_ends_it(scene: Scene) -> None:
    """An error answer may still carry a contract."""

    def stray(number: int, kind: str) -> Fault | None:
        if kind != "rent":
            return None
        made = 7001
        body = {"success": False, "error": "invalid_price", "msg": "low", "new_contract": made}
        return Fault("stray", True, 400, json.dumps(body))

    scene.wire.fault = stray
    with pytest.raises(RefusedError, match="is ended"):
        make(scene.fleet)
    assert scene.vendor.rents == 1 and scene.vendor.alive() == []


def test_refusal_shows_the_vendors_words(scene: Scene) -> None:
    """M10: the text of a 400, without secrets."""
    text = f"Your account may spend $1 an hour; key {KEY} is young"
    body = json.dumps({"success": False, "error": "spend_rate_limit", "msg": text})
    refusal = Fault("400", False, 400, body)
    scene.wire.fault = lambda number, kind: refusal if kind == "rent" else None
    with pytest.raises(RefusedError, match=r"400 Your account may spend .1 an hour") as caught:
        make(scene.fleet)
    assert KEY not in str(caught.value) and caught.value.exit_status == 5
    (row,) = scene.fleet.store.contracts(closed=True)
    assert row.stage is Stage.CLOSED and row.spent == 0 and KEY not in row.note


def test_taken_offer_is_no_failure(scene: Scene) -> None:
    search = scene.vendor._search

    def stale(*arguments: object) -> object:
        answer = search(*arguments)
        scene.vendor.offers[0]["rentable"] = True
        return answer

    scene.vendor._search = stale  # a list that is out of date
    first = dict(scene.vendor.offers[0])
    scene.wire.around = lambda number, kind, moment: (
        scene.vendor.offers[0].update(rentable=False) if kind == "rent" else None
    )
    assert first["rentable"] and make(scene.fleet).offer == "102"
    assert bad_hosts(scene.fleet.store) == []


@pytest.mark.parametrize("state", ["exited", "unknown", "offline"])
def test_states_that_never_run_are_not_waited_out(scene: Scene, state: str) -> None:
    scene.vendor.behaviour[601] = (((0.0, None), (5.0, state)), {})
    began = scene.vendor.clock.now()
    assert make(scene.fleet).offer == "102"
    assert scene.vendor.clock.now() - began < 180


def test_silent_host_is_left_after_its_limit(scene: Scene) -> None:
    """M2, M5: never ready. The machine is ended, not lost."""
    scene.vendor.behaviour[601] = (((0.0, None), (5.0, "loading")), {})
    began = scene.vendor.clock.now()
    assert make(scene.fleet).offer == "102"
    assert 900 < scene.vendor.clock.now() - began < 1200
    assert bad_hosts(scene.fleet.store)[0].category == "slow"


def test_progress_extends_the_limit(scene: Scene) -> None:
    """M10: a slow host that still pulls is not given up."""
    steps = tuple((60.0 * n, f"loading{n}") for n in range(1, 30))
    path = ((0.0, None), *((at, "loading") for at, _ in steps), (1900.0, "running"))
    scene.vendor.behaviour[601] = (path, {})
    view = scene.vendor.view

    def pulling(machine: object) -> object:
        shown = view(machine)
        if shown["actual_status"] == "loading":
            shown["status_msg"] = f"layer {int(scene.vendor.clock.now() // 300)}"
        return shown

    scene.vendor.view = pulling  # a message that changes
    assert make(scene.fleet).offer == "101"


def test_machine_that_is_never_listed_is_given_up(scene: Scene) -> None:
    """M5: the number never appears; deadline, end, next offer."""
    scene.vendor._show = lambda *_: (200, {"instances": None})
    with pytest.raises(HostBrokenError, match="no more"):
        make(scene.fleet)
    assert scene.vendor.rents == 3 and scene.vendor.alive() == []


def test_machine_without_a_dead_man_is_not_kept(scene: Scene) -> None:
    scene.vendor.armed = "no key in the container"
    with pytest.raises(VerificationError, match="no key in the container"):
        make(scene.fleet)
    assert scene.vendor.alive() == []
    assert bad_hosts(scene.fleet.store)[0].category == "no-dead-man"


def test_interrupt_at_any_wait_ends_the_machine(scene: Scene) -> None:
    """Scenario 3: Ctrl-C in every phase; each sleep is one."""
    waits = 0
    while True:
        sleep, left = scene.vendor.clock.sleep, waits
        count = [0]

        def pressed(
            seconds: float, left: int = left, count: list[int] = count, sleep=sleep
        ) -> None:
            count[0] += 1
            if count[0] == left + 1:
                raise KeyboardInterrupt
            sleep(seconds)

        object.__setattr__(scene.fleet, "clock", type("C", (), {})())
        scene.fleet.clock.now = scene.vendor.clock.now
        scene.fleet.clock.sleep = pressed
        try:
            make(scene.fleet)
        except KeyboardInterrupt:
            assert scene.vendor.alive() == []
            assert scene.fleet.store.contracts() == []
        else:
            break
        finally:
            for row in scene.vendor.offers:
                row["rentable"] = True
        waits += 1
    assert waits > 5


def test_full_disk_at_any_write_leaves_nothing_that_nobody_knows(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From some write on the disk takes no more; the machine is ended, or its label is on it."""
    commit, writes = Store._commit, 0
    while True:
        count = [0]

        def full(store: Store, count: list[int] = count, writes: int = writes) -> None:
            count[0] += 1
            if count[0] > writes:
                raise sqlite3.OperationalError("database or disk is full")
            commit(store)

        monkeypatch.setattr(Store, "_commit", full)
        try:
            make(scene.fleet)
        except FleetError:
            assert scene.unknown() == [] and scene.vendor.alive() == []
        else:
            break
        finally:
            monkeypatch.setattr(Store, "_commit", commit)
            scene.vendor.clock.sleep(200)
            if count[0] > writes:
                reap_all(scene.reopened())
            for row in scene.vendor.offers:
                row["rentable"] = True
        writes += 1
    assert writes >= 5


def test_second_interrupt_names_what_may_bill(scene: Scene) -> None:
    sleep = scene.vendor.clock.sleep
    pressed = [0]

    def at_poll(number: int, kind: str, moment: str) -> None:
        if kind == "show":
            pressed[0] = 1

    def interrupted(seconds: float) -> None:
        if pressed[0]:
            raise KeyboardInterrupt
        sleep(seconds)

    scene.wire.around = at_poll
    scene.vendor.deaf_destroys = 99
    object.__setattr__(scene.fleet, "clock", type("C", (), {})())
    scene.fleet.clock.now = scene.vendor.clock.now
    scene.fleet.clock.sleep = interrupted
    with pytest.raises(OutcomeUnknownError, match=r"box .machine 7001. may bill"):
        make(scene.fleet)
    assert scene.unknown() == []
    assert scene.fleet.store.named("box").stage is Stage.ENDING


def test_storm_of_429_takes_no_wrong_decision(scene: Scene) -> None:
    """Scenario 4: every other call is turned away, and pace is enforced besides."""
    scene.vendor.limits = True
    storm = BY_NAME["429 text"]
    scene.wire.fault = lambda number, kind: storm if number % 2 and kind != "rent" else None
    row = make(scene.fleet)
    assert row.stage is Stage.READY and len(scene.vendor.alive()) == 1


def test_pace_of_the_vendor_is_kept_without_being_told(scene: Scene) -> None:
    scene.vendor.limits = True
    turned_away: list[str] = []
    answer = scene.vendor.answer

    def watched(*arguments: object) -> object:
        reply = answer(*arguments)
        if reply[0] == 429:
            turned_away.append(str(arguments[1]))
        return reply

    scene.vendor.answer = watched  # looks at each status
    make(scene.fleet)
    assert turned_away == []


@pytest.mark.parametrize("fault", ["410", "404 page", "object after", "empty after", "null after"])
def test_broken_list_rents_nothing_and_forgets_nothing(scene: Scene, fault: str) -> None:
    """Scenario 5, M1: "", 404, HTML, {} and 410 are not "no machines"."""
    make(scene.fleet)
    scene.wire.fault = lambda number, kind: BY_NAME[fault] if kind == "list" else None
    with pytest.raises(ProviderError):
        make(scene.fleet, "two")
    assert scene.vendor.rents == 1
    with pytest.raises(ProviderError):
        reap_all(scene.fleet)
    assert [row.name for row in scene.fleet.store.contracts()] == ["box"]
    assert len(scene.vendor.alive()) == 1


def test_half_a_list_is_no_list(scene: Scene) -> None:
    whole = scene.vendor._list

    def half(*arguments: object) -> object:
        status, body = whole(*arguments)
        return status, {**body, "instances": []}

    make(scene.fleet)
    scene.vendor._list = half  # counts one and lists none
    with pytest.raises(ProviderError, match="list of machines"):
        make(scene.fleet, "two")


def test_laptop_that_dies_leaves_a_machine_that_ends_itself(scene: Scene) -> None:
    """Scenario 6: nothing renews the lease, so the machine goes within its grace."""
    object.__setattr__(scene.fleet, "connect", lambda *_: pytest.fail("died before"))
    with pytest.raises(BaseException, match="died before"):
        make(scene.fleet, keep_on_failure=True)
    # The transaction ended it; the same machine without anybody to end it:
    machine = next(iter(scene.vendor.machines.values()))
    machine.ended = None
    scene.vendor.clock.sleep(2700)
    assert scene.vendor.alive() == [] and machine.ended_itself


def test_kept_after_failure_is_shouted_and_not_reaped(scene: Scene) -> None:
    scene.vendor.armed = "no curl"
    with pytest.raises(VerificationError):
        make(scene.fleet, keep_on_failure=True)
    assert any("is kept and bills" in text for text in scene.said)
    reap_all(scene.fleet)
    assert len(scene.vendor.alive()) == 1


def test_no_offer_says_what_removed_them(scene: Scene) -> None:
    """4, M13: filtered here again, whatever the vendor returned."""
    scene.vendor.offers = [
        offer(101, cuda_max_good=12.8),
        offer(102, gpu_ram=None),
        offer(103, price=3.0),
        offer(104, duration=1200.0),
        offer(105, gpu_name="RTX 5090", inet_down_cost=None),
        offer(106, verification="unverified"),
    ]
    with pytest.raises(NoOfferError) as caught:
        make(scene.fleet)
    for word in ("CUDA 1", "memory 1", "price 1", "end 1", "download price 1", "not rentable 1"):
        assert word in str(caught.value)
    assert scene.vendor.rents == 0


def test_hand_picked_offer_passes_the_same_checks(scene: Scene) -> None:
    scene.vendor.offers.append(offer(104, reliability2=0.9))
    with pytest.raises(UsageError, match=r"reliability: 0\.9"):
        make(scene.fleet, offer="104")
    with pytest.raises(OfferGoneError, match="999"):
        make(scene.fleet, offer="999")
    assert make(scene.fleet, offer="102").offer == "102"
    assert make(scene.fleet, "two", offer="104", force=True).offer == "104"


def test_dear_downloads_lose_against_a_dearer_hour(scene: Scene) -> None:
    scene.vendor.offers = [offer(101, 0.30, inet_down_cost=0.03), offer(102, 0.40)]
    assert make(scene.fleet).offer == "102"


def test_caps(scene: Scene) -> None:
    def capped(**caps: float) -> object:
        from tests.fleet.scene import creation

        wish = creation(caps=replace(CAPS, **caps)).wish
        return make(scene.fleet, wish=wish)

    with pytest.raises(BudgetError, match="raise --max-price"):
        capped(price=0.2)
    with pytest.raises(BudgetError, match="raise --budget"):
        capped(budget=0.2)
    with pytest.raises(BudgetError, match="raise --month-budget"):
        capped(month=1.0)
    assert scene.vendor.rents == 0 and scene.fleet.store.contracts(closed=True) == []
    row = capped(budget=1.0)
    # The machine's own end is where the budget is used up, before its longest life.
    hours = (row.ends - row.created) / 3600
    assert hours == pytest.approx((1.0 - 25 * 0.002) / row.price) and hours < 8


def test_month_budget_counts_what_others_may_still_spend(scene: Scene) -> None:
    make(scene.fleet)
    make(scene.fleet, "two")
    from tests.fleet.scene import creation

    wish = creation("three", caps=replace(CAPS, month=6.0)).wish
    with pytest.raises(BudgetError, match="spent or promised"):
        make(scene.fleet, wish=wish)


def test_no_credit_rents_nothing_and_unknown_credit_is_said(scene: Scene) -> None:
    scene.vendor.balance = 0.0
    with pytest.raises(RefusedError, match="credit"):
        make(scene.fleet)
    assert scene.vendor.rents == 0
    scene.vendor._account = lambda *_: (200, {"id": 1})
    make(scene.fleet)
    assert any("does not say how much credit" in text for text in scene.said)


def test_need_is_asked_of_the_vendor_with_the_disk_in_the_price(scene: Scene) -> None:
    make(scene.fleet, need=need(reliability=0.9))
    query = next(json.loads(b.split(" ", 2)[2]) for b in scene.wire.bodies if "/bundles" in b)
    assert query["allocated_storage"] == 80 and query["disk_space"] == {"gte": 90}
    assert query["reliability"] == {"gte": 0.9}


def test_limit_of_ssh_is_a_broken_host(scene: Scene) -> None:
    def refuse(*_: object) -> object:
        raise HostBrokenError("nobody answers", category="no-ssh")

    object.__setattr__(scene.fleet, "connect", refuse)
    with pytest.raises(HostBrokenError, match="may never have written the key"):
        make(scene.fleet)
    assert scene.vendor.alive() == [] and scene.vendor.rents == 3
    assert {bad.category for bad in bad_hosts(scene.fleet.store)} == {"no-ssh"}
