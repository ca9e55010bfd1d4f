"""Fixtures of this folder: a vendor on a socket, and a fleet that rents from it."""

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ninfer.fleet.fleet import Fleet
from tests.fleet.scene import close_fleet, open_fleet
from tests.fleet.vendor import Vendor, offer
from tests.fleet.wire import Wire


@dataclass
class Scene:
    """A vendor with three good offers, its wire, and a fleet in a folder of its own."""

    vendor: Vendor
    wire: Wire
    fleet: Fleet
    folder: Path
    said: list[str] = field(default_factory=list)

    def reopened(self) -> Fleet:
        """The fleet as the next command finds it."""
        close_fleet(self.fleet)
        self.fleet = open_fleet(
            self.folder, self.wire.root, self.vendor.clock, self.vendor.box, self.said.append
        )
        return self.fleet

    def unknown(self) -> list[int]:
        """Machines that bill and of which the records know neither number nor label."""
        rows = self.fleet.store.contracts()
        known = {row.machine_id for row in rows} | {row.label for row in rows}
        alive = self.vendor.alive()
        return [m.id for m in alive if not {str(m.id), m.body["label"]} & known]


@contextmanager
def opened_scene(folder: Path) -> Iterator[Scene]:
    vendor = Vendor()
    vendor.offers = [offer(101, 0.30), offer(102, 0.35), offer(103, 0.40)]
    wire = Wire(vendor)
    thread = threading.Thread(target=wire.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    said: list[str] = []
    fleet = open_fleet(folder, wire.root, vendor.clock, vendor.box, said.append)
    made = Scene(vendor, wire, fleet, folder, said)
    try:
        yield made
    finally:
        close_fleet(made.fleet)
        wire.shutdown()
        wire.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have keys in the system's keyring."""
    monkeypatch.setitem(sys.modules, "keyring", None)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with opened_scene(tmp_path) as made:
        yield made


@pytest.fixture
def scenes(tmp_path: Path) -> Iterator[Callable[[], Scene]]:
    """Makes one new scene after another; the one before is closed."""
    numbers = itertools.count()
    with ExitStack() as now:

        def make() -> Scene:
            now.close()
            folder = tmp_path / str(next(numbers))
            folder.mkdir()
            return now.enter_context(opened_scene(folder))

        yield make
