"""A fleet against the vendor of these tests: in this process, or in one that can be killed."""

import http.client
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from ninfer.errors import HostBrokenError
from ninfer.fleet.box import Ran
from ninfer.fleet.clock import Clock
from ninfer.fleet.config import Settings, load_settings
from ninfer.fleet.contract import Contract
from ninfer.fleet.creating import Creation, create
from ninfer.fleet.fleet import Fleet
from ninfer.fleet.money import Caps
from ninfer.fleet.power import down, end, up
from ninfer.fleet.provider import Need, Snapshot
from ninfer.fleet.reaping import Reaped, reap
from ninfer.fleet.renting import Wish
from ninfer.fleet.store import Store
from ninfer.fleet.vast import Vast
from ninfer.fleet.vast_http import VastHttp
from tests.fleet.vendor import KEY

PUBLIC = "ssh-ed25519 " + "A" * 68 + " someone@somewhere"
CAPS = Caps(price=1.0, budget=5.0, month=20.0, lifetime=8 * 3600.0, idle=1200.0)
BoxCall = Callable[[int, str], tuple[int, str]]


class VendorBox:
    """A machine of the scene, whose commands the vendor answers."""

    def __init__(self, machine_id: str, call: BoxCall) -> None:
        self._number = int(machine_id)
        self._call = call

    def run(self, command: str, *, stdin: str | bytes = "", timeout: float = 60.0) -> Ran:
        status, out = self._call(self._number, command)
        if status == 255:
            raise HostBrokenError("nobody answers", category="no-ssh")
        return Ran(status, out, "")

    def close(self) -> None:
        pass


def out_of_patience(response: httpx.Response) -> None:
    """A silence of the vendor is an answer that says so: no machine is slow enough to make one."""
    if "x-silence" in response.headers:
        raise httpx.ReadTimeout("timed out", request=response.request)


def settings_in(folder: Path, **environ: str) -> Settings:
    (folder / "project").mkdir(exist_ok=True)
    given = {"VAST_API_KEY": KEY, "NINFER_PROJ": str(folder / "project"), **environ}
    return load_settings(given, folder, folder)


def open_fleet(
    folder: Path, root: str, clock: Clock, box: BoxCall, say: Callable[[str], None]
) -> Fleet:
    """A fleet whose records lie in `folder`."""
    settings = settings_in(folder)
    http_client = VastHttp(root, KEY, clock, settings.redact)
    http_client._http.event_hooks = {"response": [out_of_patience]}

    def connect(contract: Contract, shot: Snapshot) -> VendorBox:
        opened = VendorBox(shot.id, box)
        opened.run("true")
        return opened

    store = Store(settings.records, clock)
    return Fleet(settings, store, {"vast": Vast(http_client, clock)}, clock, say, connect)


def close_fleet(fleet: Fleet) -> None:
    fleet.store.close()
    vast = fleet.providers["vast"]
    assert isinstance(vast, Vast)
    vast.close()


def need(**changes: Any) -> Need:
    values: dict[str, Any] = {
        "gpu": "rtx5090",
        "gpu_names": ("RTX 5090",),
        "gpu_ram": 30000,
        "disk": 80,
        "free_disk": 90,
        "cuda": 13.0,
        "max_price": 1.0,
        "hours": 2,
        "lifetime": CAPS.lifetime,
    }
    return Need(**{**values, **changes})


def creation(name: str = "box", caps: Caps = CAPS, **changes: Any) -> Creation:
    wish = Wish(name, "example/cuda:13", 80, 25, caps)
    values: dict[str, Any] = {
        "need": need(),
        "wish": wish,
        "public_key": PUBLIC,
        "api": "http://vendor.example",
    }
    return Creation(**{**values, **changes})


def make(fleet: Fleet, name: str = "box", **changes: Any) -> Contract:
    return create(fleet, fleet.providers["vast"], creation(name, **changes))


def reap_all(fleet: Fleet, **options: bool) -> Reaped:
    return reap(fleet, fleet.providers["vast"], **options)


class RemoteClock:
    """The scene's time, asked for over the wire by a process of its own."""

    def __init__(self, port: int) -> None:
        self._port = port

    def now(self) -> float:
        return float(control(self._port, "clock", {"sleep": 0}))

    def sleep(self, seconds: float) -> None:
        control(self._port, "clock", {"sleep": seconds})


def control(port: int, what: str, body: dict[str, Any]) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request("POST", f"/_control/{what}", json.dumps(body))
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


VERBS: dict[str, Callable[[Fleet], object]] = {
    "create": make,
    "down": lambda fleet: down(fleet, fleet.store.named("box")),
    "up": lambda fleet: up(fleet, fleet.store.named("box"), 3600.0),
    "destroy": lambda fleet: end(fleet, fleet.store.named("box")),
    "reap": reap_all,
}


def run_verb(verb: str, folder: str, port: int, kill_at_commit: int = -1) -> None:
    """The body of a process that tests kill; `kill_at_commit` kills it at its own commits."""
    if kill_at_commit >= 0:
        _die_at_commit(kill_at_commit)

    def box(machine: int, command: str) -> tuple[int, str]:
        status, out = control(port, "box", {"machine": machine, "command": command})
        return status, out

    clock = RemoteClock(port)
    fleet = open_fleet(Path(folder), f"http://127.0.0.1:{port}", clock, box, lambda text: None)
    VERBS[verb](fleet)
    close_fleet(fleet)


def _die_at_commit(number: int) -> None:
    """Even numbers die just before their half's commit reaches the disk, odd ones just after."""
    import os
    import signal

    commit = Store._commit
    seen = [0]

    def dying(self: Store) -> None:
        if seen[0] == number // 2 and number % 2 == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        commit(self)
        if seen[0] == number // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        seen[0] += 1

    Store._commit = dying  # in a process that is about to die
