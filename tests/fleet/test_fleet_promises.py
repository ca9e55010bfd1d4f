"""What the original's README promises and its script breaks (fleet.md 1.2 and 1.3), by name."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ninfer.cli import main
from ninfer.fleet.config import load_settings
from ninfer.fleet.kit_choice import choose_kit
from ninfer.fleet.served import served_at
from tests.fleet.conftest import Scene
from tests.fleet.scene import make
from tests.fleet.test_fleet_cli import Call, call

__all__ = ["call"]


class Models(BaseHTTPRequestHandler):
    """A server that lists one model to who has its key."""

    def do_GET(self) -> None:
        known = self.headers["authorization"] == "Bearer serving-key"
        data = json.dumps({"data": [{"id": "qwen3.6-27b"}]} if known else {"error": "no"}).encode()
        self.send_response(200 if known else 401)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Models)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}/v1"
    made.shutdown()
    made.server_close()
    thread.join()


@dataclass
class Place:
    """Where a promise is tried."""

    scene: Scene
    call: Call
    project: Path
    server: str

    def set(self, line: str) -> None:
        with (self.project / ".env").open("a") as file:
            file.write(line + "\n")


def blank_digest_builds_from_source(place: Place) -> None:
    place.set("NINFER_KIT_SHA256=")
    settings = load_settings({}, place.project, place.project)
    assert choose_kit(settings, lambda: "https://store.example/kit").builds
    status, out, _ = place.call("kit-url")
    assert status == 0 and "built on the machine from main" in out


def status_prints_the_served_model(place: Place) -> None:
    make(place.scene.fleet)
    place.set(f"NINFER_BASE_URL={place.server}\nNINFER_API_KEY=serving-key")
    status, out, err = place.call("status")
    assert status == 0 and "serves qwen3.6-27b" in out, err
    assert "serving-key" not in out + err
    served = json.loads(place.call("status", "--json")[1])["served"]
    assert served["model"] == "qwen3.6-27b"


def status_goes_on_when_nobody_serves(place: Place) -> None:
    make(place.scene.fleet)
    place.set("NINFER_BASE_URL=http://127.0.0.1:9/v1")
    status, out, _ = place.call("status")
    assert status == 0 and "running" in out and "nobody answers; 'ninfer tunnel'" in out
    assert served_at(place.server, "wrong").problem == "answers 401"


def settings_work_from_dotenv(place: Place) -> None:
    place.set("NINFER_KIT_URL=https://mine.example/kit")
    assert place.call("kit-url")[1] == "https://mine.example/kit\n"


def dotenv_is_never_executed(place: Place) -> None:
    proof = place.project / "proof"
    place.set(f"NINFER_API_KEY=secret|touch {proof}\nNINFER_DISK=$(touch {proof})")
    assert place.call("status")[0] == 0 and not proof.exists()


def a_missing_dotenv_is_no_error(place: Place) -> None:
    (place.project / ".env").unlink()
    status, _, err = place.call("badhosts")
    assert status == 0, err


def an_unknown_command_is_one_line_and_status_2(place: Place) -> None:
    status, _, err = place.call("crate")
    assert status == 2 and "did you mean 'create'" in err and err.count("\n") == 1


PROMISES: tuple[Callable[[Place], None], ...] = (
    blank_digest_builds_from_source,
    status_prints_the_served_model,
    status_goes_on_when_nobody_serves,
    settings_work_from_dotenv,
    dotenv_is_never_executed,
    a_missing_dotenv_is_no_error,
    an_unknown_command_is_one_line_and_status_2,
)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_promise(
    promise: Callable[[Place], None], scene: Scene, call: Call, tmp_path: Path, server: str
) -> None:
    promise(Place(scene, call, tmp_path / "project", server))


def test_verbs_of_the_original_are_all_there(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that provisioning adds are named in `later`, until they are there."""
    verbs = {"create", "destroy", "up", "down", "status", "offers", "ssh", "log", "kit-url"}
    verbs |= {"build", "kit-pack", "log-build", "bench", "provision", "restore"}
    later = {"provision", "restore"}
    assert main(["--help"]) == 0
    words = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.split()}
    assert verbs - words <= later
