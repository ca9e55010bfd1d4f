"""The records: whole transactions, one name each, private files, months and shares."""

import calendar
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ninfer.errors import ExistsError, FleetError, UsageError
from ninfer.fleet.contract import Contract, Stage, make_label, records_of_label
from ninfer.fleet.money import Caps, month_start
from ninfer.fleet.store import Store
from tests.fleet.vendor import VirtualClock


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "records", VirtualClock())
    yield made
    made.close()


def add(store: Store, name: str, **values: object) -> Contract:
    now = store.clock.now()
    row = {"name": name, "provider": "vast", "label": "l", "stage": Stage.READY}
    with store.transaction():
        return store.add({**row, "created": now, "counted_until": now, **values}, "made")


def test_files_are_private(store: Store) -> None:
    assert store.folder.stat().st_mode & 0o077 == 0
    for path in store.folder.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(UsageError, match="chmod 700"):
        Store(folder, VirtualClock())


def test_what_fails_leaves_nothing(store: Store) -> None:
    now = store.clock.now()
    with pytest.raises(KeyboardInterrupt), store.transaction():
        row = {"name": "a", "provider": "v", "label": "l", "stage": "intent"}
        store.add({**row, "created": now, "counted_until": now}, "made")
        raise KeyboardInterrupt
    assert store.contracts(closed=True) == []


def test_name_is_free_again_when_its_machine_is_closed(store: Store) -> None:
    row = add(store, "a")
    with pytest.raises(ExistsError, match="'ninfer destroy a'"):
        add(store, "a")
    store.change(row, "ended", stage=Stage.CLOSED)
    add(store, "a")
    assert len(store.contracts(closed=True)) == 2


def test_parallel_writers_lose_nothing(store: Store) -> None:
    row = add(store, "a")

    def write() -> None:
        other = Store(store.folder, VirtualClock())
        for _ in range(20):
            other.count(row, row.counted_until, 0.01, 0.0)
        other.close()

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.contracts()[0].spent == pytest.approx(0.8)


def test_records_of_another_version_or_damaged_are_named(tmp_path: Path) -> None:
    made = Store(tmp_path, VirtualClock())
    made.close()
    db = sqlite3.connect(tmp_path / "fleet.sqlite3")
    db.execute("UPDATE facts SET value = '9' WHERE name = 'version'")
    db.commit()
    db.close()
    with pytest.raises(FleetError, match=r"fleet\.sqlite3: version 9"):
        Store(tmp_path, VirtualClock())
    (tmp_path / "fleet.sqlite3").write_bytes(b"rubbish" * 1000)
    with pytest.raises(FleetError, match=r"fleet\.sqlite3: .*not usable"):
        Store(tmp_path, VirtualClock())


def test_month_takes_its_share_of_a_period(store: Store) -> None:
    row = add(store, "a")
    now = store.clock.now()
    store.count(row, now + 1000, 10.0, 0.0)
    assert store.spent_since(now - 5) == pytest.approx(10.0)
    assert store.spent_since(now + 750) == pytest.approx(2.5)
    assert store.spent_since(now + 1000) == 0.0


@pytest.mark.parametrize(
    "text", ["2026-12-31 23:59:59", "2026-03-01 00:00:00", "2028-02-29 12:00:07"]
)
def test_month_starts_at_its_first_second(text: str) -> None:
    date, time = text.split()
    year, month, day = map(int, date.split("-"))
    hours, minutes, seconds = map(int, time.split(":"))
    moment = calendar.timegm((year, month, day, hours, minutes, seconds)) + 0.25
    assert month_start(moment) == calendar.timegm((year, month, 1, 0, 0, 0))


def test_labels_tell_whose_they_are() -> None:
    assert records_of_label(make_label("0a1b2c3d", "my-box", "0123456789ab")) == "0a1b2c3d"
    for other in ("", "ninfer-5090-nvfp4-27b", "ninfer.x.y.z", "ninfer.0a1b2c3d.box.0123456789abc"):
        assert records_of_label(other) is None


def test_budget_sets_the_life() -> None:
    caps = Caps(price=1, budget=2.0, month=9, lifetime=8 * 3600, idle=60)
    assert caps.lifetime_at(1.0, 0.0) == 2 * 3600
    assert caps.lifetime_at(1.0, 1.5) == 1800
    assert caps.lifetime_at(0.1, 0.0) == 8 * 3600
    assert caps.lifetime_at(0.0, 5.0) == 8 * 3600
    assert caps.lifetime_at(1.0, 5.0) == 0
