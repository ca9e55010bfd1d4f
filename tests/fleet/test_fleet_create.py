"""`create` against the vendor: good days, bad hosts, lost answers, caps."""

import pytest

from ninfer.fleet.contract import Stage
from tests.fleet.conftest import Scene
from tests.fleet.scene import make


def test_a_good_day(scene: Scene) -> None:
    row = make(scene.fleet)
    assert row.stage is Stage.READY and row.offer == "101"
    (machine,) = scene.vendor.alive()
    assert str(machine.id) == row.machine_id and machine.body["label"] == row.label
