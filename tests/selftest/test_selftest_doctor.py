"""`ninfer doctor` on planted faults: each named, with what mends it."""

import json
import os
import socket
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ninfer.selftest import cards, machine, packages
from ninfer.selftest.bundle import redacted, settings
from tests.kits.kit_files import write_kit

ROOT = Path(__file__).resolve().parents[2]
SMI = """#!/bin/sh
case "$1" in
  --query-gpu=*) printf '%s\\n' "$CARDS" ;;
  *) printf '%s\\n' "$APPS" ;;
esac
exit "${STATUS:-0}"
"""
H200 = "0, NVIDIA H200, 9.0, 143771, 0, 580.95.05"


def doctor(*arguments: object, code: int, **changes: str | None) -> dict[str, dict[str, str]]:
    """Findings by name, from a process of its own."""
    environment = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    environment.update({name: x for name, x in changes.items() if x is not None})
    for name in [name for name, value in changes.items() if value is None]:
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-m", "ninfer", "doctor", "--json", *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return {item["name"]: item for item in json.loads(done.stdout)}


@pytest.fixture
def smi(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """The environment of a machine whose driver tells this."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(SMI)
    program.chmod(0o755)

    def told(rows: str = H200, apps: str = "", status: int = 0) -> dict[str, str]:
        path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "CARDS": rows, "APPS": apps, "STATUS": str(status)}

    return told


def test_all_faults_of_one_machine_are_named_with_their_fix(
    tmp_path: Path, smi: Callable[..., dict[str, str]]
):
    """Ten at once: none hides another."""
    damaged = tmp_path / "model.ninfer"
    damaged.write_bytes(b"no artifact")
    apps = "4242, 9000, /usr/bin/other-server"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        found = doctor(
            damaged,
            *("--port", number, "--folder", tmp_path),
            code=1,
            **smi(f"{H200}\n1, NVIDIA TITAN V, 7.0, 12288, 11000, 580.95.05", apps),
            CUDA_VISIBLE_DEVICES="5",
            TRITON_INTERPRET="1",
            CC="no-such-compiler",
            NINFER_KERNELS=str(tmp_path),
            NINFER_KIT=str(tmp_path / "nowhere"),
            TRITON_CACHE_DIR="/proc/nothing",
        )
    planted = {
        "torch": "is built for CPUs",
        "card 1": "sm_70",
        "processes": "other-server (pid 4242, 9000 MiB)",
        "CUDA_VISIBLE_DEVICES": "the machine has 2 cards",
        "TRITON_INTERPRET": "thousands of times slower",
        "C compiler": "'no-such-compiler'",
        "CUDA kernels": "holds no kernels",
        "kit": "nowhere",
        "Triton cache": "/proc/nothing",
        f"port 127.0.0.1:{number}": "another program listens",
        "model.ninfer structure": "",
    }
    for name, text in planted.items():
        assert found[name]["verdict"] in ("bad", "note") and text in found[name]["text"], name
        assert found[name]["fix"], name
    assert found["card 0"]["verdict"] == found["driver"]["verdict"] == "ok"


def test_this_machine_is_well(tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    hidden = {"NINFER_KERNELS": None, "NINFER_KIT": None, "CUDA_VISIBLE_DEVICES": None}
    path = tmp_path / "report.zip"
    found = doctor(
        *("--port", number, "--bundle", path), code=0, **hidden, HF_TOKEN="hf_abcdefghijklmnop"
    )
    assert all(item["verdict"] != "bad" for item in found.values())
    assert {"python", "packages", "torch", "triton", "disk", "video"} <= set(found)
    with zipfile.ZipFile(path) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert json.loads(texts["versions.json"])["torch"]
    assert json.loads(texts["environment.json"])["HF_TOKEN"] == "..."
    whole = "".join(texts.values())
    assert "hf_abcdef" not in whole and str(Path.home()) not in whole


@pytest.mark.parametrize(
    ("rows", "status", "name", "text"),
    [
        ("", 0, "driver", "sees no card"),
        ("Failed to initialize NVML: Driver/library version mismatch", 18, "driver", "mismatch"),
        ("what, is, this", 0, "driver", "not understood"),
    ],
)
def test_broken_drivers(
    smi: Callable[..., dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    rows: str,
    status: int,
    name: str,
    text: str,
):
    for variable, value in smi(rows, status=status).items():
        monkeypatch.setenv(variable, value)
    (first, *_) = cards.driver_and_torch(cards.devices())
    assert first.name == name and text in first.text


@pytest.mark.parametrize("hiding", ["", "-1", "NoDevFiles"])
def test_every_card_hidden(monkeypatch: pytest.MonkeyPatch, hiding: str):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hiding)
    (found,) = cards.visible([cards.Device(0, "H200", 90, 1000, 0, "580")])
    assert found.verdict == "bad" and "every card is hidden" in found.text and found.fix


def test_another_triton_than_torch_asks_for(monkeypatch: pytest.MonkeyPatch):
    wanted = ["filelock", 'triton==3.0.1; platform_system == "Linux"']
    monkeypatch.setattr(packages.importlib.metadata, "requires", lambda name: wanted)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    found = {item.name: item for item in packages.compilers()}
    assert found["triton"].verdict == "bad" and found["triton"].fix == "pip install triton==3.0.1"


def test_a_package_that_crashes_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "av.py").write_text("import os\nos.abort()\n")
    (tmp_path / "fastapi.py").write_text("raise ImportError('libfoo.so.1 not found')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (found,) = packages.packages()
    assert "av (crashes with signal 6)" in found.text and "libfoo.so.1" in found.text
    assert found.fix == "pip install --force-reinstall av fastapi"
    (video,) = packages.decoders()
    assert video.verdict == "bad"


def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch):
    found = {item.name: item for item in machine.disk(Path("/proc"))}
    assert all(item.fix for item in found.values())
    assert stat.S_ISDIR(os.stat("/proc").st_mode)


@pytest.mark.parametrize(
    ("host", "text"), [("no.such.host.invalid", "no such address"), ("192.0.2.1", "")]
)
def test_addresses_that_are_not_here(host: str, text: str):
    (found,) = machine.port(host, 8080)
    assert found.verdict == "bad" and text in found.text and found.fix


def test_a_kit_of_another_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from ninfer.kits.archive import unpack

    archive = write_kit(tmp_path / "kit.tar.gz")
    folder = tmp_path / "kit"
    folder.mkdir()
    manifest = unpack(archive, folder)
    (folder / "MANIFEST.json").write_text(manifest.to_json())
    monkeypatch.setenv("NINFER_KIT", str(folder))
    (found,) = machine.kit()
    assert found.verdict == "bad" and "Triton's build is" in found.text and found.fix


def test_an_examination_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch):
    from ninfer.selftest import doctor as examining
    from ninfer.selftest.options import DoctorOptions

    def fails() -> Any:
        raise RuntimeError("unheard of")

    monkeypatch.setattr(packages, "python", fails)
    found = {item.name: item for item in examining.examine(DoctorOptions(), [])}
    assert "unheard of" in found["python"].text and "disk" in found


def test_what_is_redacted(monkeypatch: pytest.MonkeyPatch):
    home = str(Path.home())
    text = f"{home}/x GPU-1234abcd-12 10.1.2.3 hf_abcdefghijkl sk-abcdefghijkl me@mail.example"
    said = redacted(text)
    assert said == "~/x GPU-... 0.0.0.0 hf-... sk-... someone@..."
    values = {"NINFER_API_KEY": "s", "CUDA_HOME": "/c", "MINE": "m", "OMP_NUM_THREADS": "1"}
    shown = settings(values)
    assert shown == {**values, "NINFER_API_KEY": "...", "MINE": "..."}
