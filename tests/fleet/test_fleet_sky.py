"""Other clouds through a program `sky`: the money rules hold there as well."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ninfer.errors import ProviderError
from ninfer.fleet.dead_man import DeadMan
from ninfer.fleet.provider import Phase
from ninfer.fleet.sky import Sky
from ninfer.fleet.sky_command import SkyCommand
from tests.fleet.conftest import Scene
from tests.fleet.scene import need
from tests.fleet.test_fleet_cli import Call, call
from tests.fleet.test_fleet_dead_man import until

__all__ = ["call"]

CREATE = (
    "create",
    "--bare",
    "--provider",
    "sky",
    "--gpu",
    "h200",
    "--max-price",
    "5",
    "--budget",
    "50",
)
FAKE = Path(__file__).with_name("fake_sky.py")


class FakeSky:
    """The folder of the fake."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fails(self, fault: str) -> None:
        (self.folder / "fault").write_text(fault)

    def clusters(self) -> dict[str, Any]:
        path = self.folder / "clusters.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def calls(self, verb: str) -> list[list[str]]:
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [words for words in map(json.loads, lines) if words[0] == verb]


@pytest.fixture
def sky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSky]:
    folder, programs = tmp_path / "sky", tmp_path / "programs"
    folder.mkdir()
    programs.mkdir()
    (programs / "sky").write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {FAKE} "$@"\n')
    # What SkyPilot writes into the configuration of ssh leads here.
    (programs / "ssh").write_text(
        "#!/bin/sh\nfor last; do :; done\n"
        f'exec sh -c "$(printf %s "$last" | sed "s#/root/.ninfer#{folder}/box#g")"\n'
    )
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SKY", str(folder))
    monkeypatch.setenv("NINFER_MONTH_BUDGET", "100")
    made = FakeSky(folder)
    yield made
    for cluster in made.clusters().values():
        try:
            os.killpg(cluster["job"], signal.SIGKILL)
        except ProcessLookupError:
            continue


def test_created_shown_and_ended(sky: FakeSky, call: Call, scene: Scene) -> None:
    status, out, err = call(*CREATE, "--json")
    assert status == 0, err
    row = json.loads(out)
    assert row["provider"] == "sky" and list(sky.clusters()) == [row["label"]]
    assert 3.5 < row["price"] < 3.6, "the cheapest place, with a disk on top"
    (words,) = sky.calls("launch")
    assert words[:5] == ["launch", "--yes", "--detach-run", "--cluster", row["label"]]
    assert words[5:8] == ["--idle-minutes-to-autostop", "1", "--down"]
    task = json.loads((sky.folder / "task.json").read_text())
    assert task["resources"]["infra"] == "aws/us-east-1"
    assert task["resources"]["accelerators"] == "H200:1"
    assert scene.vendor.made == [] if hasattr(scene.vendor, "made") else True
    before = len(sky.calls("status"))
    status, out, err = call("status", "--json")
    assert status == 0, err
    assert len(sky.calls("status")) == before + 1, "one list"
    (line,) = json.loads(out)["lines"]
    assert line["state"] == "UP" and line["rate"] == pytest.approx(row["price"])
    assert line["minutes"] and line["minutes"] <= 8 * 60
    status, _, err = call("down")
    assert status == 5 and "dead-man" in err
    status, _, err = call("tunnel")
    assert status == 2 and f"127.0.0.1:8080 {row['label']}" in err
    assert call("destroy")[0] == 0 and sky.clusters() == {}


def test_it_ends_itself_when_nobody_comes_back(sky: FakeSky, call: Call, scene: Scene) -> None:
    """Its job is over, and by that the cluster; the records hear of it."""
    assert call(*CREATE)[0] == 0
    (cluster,) = sky.clusters().values()
    os.killpg(cluster["job"], signal.SIGKILL)
    until(lambda: "not listed" in call("status")[1])
    scene.vendor.clock.sleep(600)  # a new machine may be missing from lists for a while
    assert call("reap")[0] == 0
    assert "no machines; nothing bills" in call("status")[1]


def test_the_script_of_a_job_ends_with_the_machines_time(tmp_path: Path) -> None:
    """Without a vendor's API the dead-man stays in the foreground, needs no key, and ends."""
    folder = tmp_path / "box"
    script = DeadMan("", life=1, idle=60, grace=1, pause=0.1, folder=str(folder)).script()
    environ = {"PATH": os.environ["PATH"]}
    job = subprocess.Popen(["sh", "-c", script], env=environ, stdout=subprocess.DEVNULL)
    until(lambda: (folder / "armed").exists() and (folder / "armed").read_text() == "yes\n")
    assert job.wait(20) == 0
    long = DeadMan("", life=900, idle=60, grace=900, pause=0.1, folder=str(folder)).script()
    for name in ("lease", "end"):
        (folder / name).unlink()
    job = subprocess.Popen(["sh", "-c", long], env=environ, stdout=subprocess.DEVNULL)
    until(lambda: (folder / "beat").exists())
    time.sleep(0.5)
    assert job.poll() is None, "its time is not over"
    (folder / "active").touch()
    os.utime(folder / "active", (1, 1))
    assert job.wait(20) == 0, "nobody asks it anything"


def test_a_lost_answer_is_one_machine(sky: FakeSky, call: Call) -> None:
    sky.fails("answer lost")
    status, _, err = call(*CREATE)
    assert status == 0 and "looking for it by its label" in err, err
    assert len(sky.calls("launch")) == 1 and len(sky.clusters()) == 1
    sky.fails("")
    assert call("destroy")[0] == 0 and sky.clusters() == {}


def test_no_capacity_leaves_nothing(sky: FakeSky, call: Call) -> None:
    sky.fails("no capacity")
    status, _, err = call(*CREATE)
    assert status == 10 and "no machine came of it" in err
    assert "nothing bills" in call("status")[1] or sky.clusters() == {}


@pytest.mark.parametrize("fault", ["garbage", "no server"])
def test_a_list_that_is_none_rents_and_forgets_nothing(
    sky: FakeSky, call: Call, fault: str
) -> None:
    sky.fails(fault)
    assert call(*CREATE)[0] == 10
    assert sky.calls("launch") == []
    if fault != "garbage":
        return
    sky.fails("")
    assert call(*CREATE)[0] == 0
    sky.fails(fault)
    status, out, err = call("status")
    assert status == 10 and "unknown" in out and "sky status" in err
    assert call("destroy")[0] == 12 and sky.calls("down")
    sky.fails("")
    assert call("reap")[0] == 0 and sky.clusters() == {}


def test_an_end_that_is_still_listed_is_no_end(sky: FakeSky, call: Call) -> None:
    assert call(*CREATE)[0] == 0
    sky.fails("down does nothing")
    status, _, err = call("destroy")
    assert status == 12 and "may still bill" in err
    sky.fails("")
    assert call("reap")[0] == 0 and sky.clusters() == {}


def test_without_the_program_the_remedy_is_named(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NINFER_SKY", "/nowhere/sky")
    status, _, err = call(*CREATE)
    assert status == 2 and "uv tool install 'skypilot[aws]'" in err and "NINFER_SKY" in err


@pytest.mark.parametrize(
    "printed",
    ["", "[]x", '{"a": 1}', '[{"name": 1, "status": "UP"}]', '["x"]', '[{"name": "x"}]', "null"],
)
def test_shapes_that_nobody_knows_are_unknown(tmp_path: Path, printed: str) -> None:
    program = tmp_path / "sky"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{printed}\nEND\n")
    program.chmod(0o755)
    with pytest.raises(ProviderError):
        Sky(SkyCommand(str(program))).machines()


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        ("INIT", Phase.STARTING),
        ("UP", Phase.RUNNING),
        ("AUTOSTOPPING", Phase.RUNNING),
        ("STOPPED", Phase.STOPPED),
        ("PENDING", Phase.REQUESTED),
        ("NEWER", Phase.UNKNOWN),
    ],
)
def test_states(tmp_path: Path, status: str, phase: Phase) -> None:
    program = tmp_path / "sky"
    program.write_text(f'#!/bin/sh\necho \'[{{"name": "x", "status": "{status}"}}]\'\n')
    program.chmod(0o755)
    (shot,) = Sky(SkyCommand(str(program))).machines()
    assert shot.phase is phase and (shot.ssh is not None) == (status == "UP")


def test_offers_of_one_card_only_and_priced(sky: FakeSky) -> None:
    wanted = need(gpu="h200", gpu_names=("H200",))
    offers = Sky(SkyCommand("sky")).offers(wanted)
    by_place = {(offer.place, offer.gpus): offer for offer in offers}
    assert len(offers) == 2, "one that has no price is none; equal ones are one"
    one = by_place["AWS us-east-1", 1]
    assert one.price == pytest.approx(3.5 + 80 * 0.3 / 720)
