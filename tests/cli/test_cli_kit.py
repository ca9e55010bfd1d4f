"""`ninfer kit`: verify, install and tell about a kit; wrong use named."""

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ninfer.cli.main import main
from ninfer.kits.home import KIT
from ninfer.kits.stack import Stack
from tests.kits.kit_files import KERNEL, STACK, write_kit


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NINFER_KITS", str(tmp_path / "kits"))
    monkeypatch.delenv(KIT, raising=False)
    monkeypatch.setattr(Stack, "here", classmethod(lambda cls: STACK))
    return tmp_path / "kits"


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    return write_kit(tmp_path / "good.kit.tar.gz")


@pytest.fixture
def address(kit: Path) -> Iterator[str]:
    """A server of the folder that the kit lies in."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(kit.parent))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_verify_install_info(kit: Path, place: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["kit", "verify", str(kit)]) == 0
    assert "8 files" in capsys.readouterr().out
    assert main(["kit", "install", str(kit)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert Path(told["folder"]).parent == place and told["triton_kernels"] == 1
    assert main(["kit", "info"]) == 0
    assert json.loads(capsys.readouterr().out) == told
    assert main(["kit", "info", str(kit)]) == 0
    assert json.loads(capsys.readouterr().out)["architecture"] == 90
    (Path(told["folder"]) / KERNEL).write_bytes(b"")
    assert main(["kit", "info"]) == 1
    assert f"{KERNEL}: not as it was installed" in capsys.readouterr().out


def test_from_an_address(kit: Path, address: str, place: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["kit", "install", f"{address}/{kit.name}"]) == 0
    assert json.loads(capsys.readouterr().out)["architecture"] == 90
    assert main(["kit", "verify", f"{address}/nothing"]) == 1
    assert "HTTP 404" in capsys.readouterr().err
    assert main(["kit", "verify", "http://127.0.0.1:9/kit"]) == 1
    assert "ConnectError" in capsys.readouterr().err


def test_wrong_digest_and_missing_file(kit: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["kit", "verify", str(kit), "--sha256", "0" * 64]) == 1
    assert "its SHA-256 is" in capsys.readouterr().err
    assert main(["kit", "install", str(kit.parent / "none.tar.gz")]) == 1
    assert "none.tar.gz: no such file" in capsys.readouterr().err


def test_nothing_installed(capsys: pytest.CaptureFixture[str]):
    assert main(["kit", "info"]) == 2
    assert "no kit is installed in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "--architecture 0: must be one of 80, 86, 89, 90, 100, 120"),
        (["--architecture", "91"], "--architecture 91: must be one of"),
        (["--architecture", "90", "--every", "0"], "--every 0"),
        (["--architecture", "90", "--wheel", "no.whl"], "--wheel no.whl: no such file"),
        (["--architecture", "90", "--lock", "no.lock"], "--lock no.lock: no such file"),
    ],
)
def test_wrong_builds(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]):
    assert main(["kit", "build", *arguments]) == 2
    assert reason in capsys.readouterr().err


def test_other_commands_do_not_look_for_a_kit_without_one(place: Path):
    """Importing torch takes seconds; `ninfer run --help` must not."""
    code = (
        "import sys; from ninfer.kits.home import any_kit; any_kit(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
