"""A rental vendor in memory: offers, machines that change with virtual time, and a bill."""

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
Reply = tuple[int, Any]

KEY = "vast-key-4f1c9d"  # the account's key
START = 1_800_000_000.0
# When a healthy machine reaches each state, in seconds after its start.
HEALTHY = ((0.0, None), (4.0, "created"), (8.0, "loading"), (40.0, "running"))


class VirtualClock:
    """Time that passes only by `sleep`; every part of a scene shares it."""

    def __init__(self) -> None:
        self._now = START
        self._lock = threading.Lock()

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self._now += max(0.0, seconds)


@dataclass
class Machine:
    """A rented machine. `path` says when it reaches which state after its last start."""

    id: int
    offer: Json
    body: Json
    made: float
    path: tuple[tuple[float, str | None], ...]
    messages: dict[str | None, str]
    started: float
    ports: int
    running_for: float = 0.0  # seconds of GPU billed before the last start
    stopped: float | None = None
    wants_running: bool = True
    ended: float | None = None
    keys: list[str] = field(default_factory=list)
    lease: float = 0.0
    end: float = 0.0
    ended_itself: bool = False


class Vendor:
    """The vendor's rules. Every request goes through `answer`; tests set the other attributes.

    `behaviour` maps a host's machine number to (path, messages); `hidden` is for how many seconds
    a new machine is missing from lists; `dead_man` lets machines end themselves as their script
    would.
    """

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.lock = threading.RLock()
        self.offers: list[Json] = []
        self.machines: dict[int, Machine] = {}
        self.behaviour: dict[int, tuple[tuple[tuple[float, str | None], ...], Json]] = {}
        self.hidden = 0.0
        self.gpu_taken = False
        self.stop_hangs = False
        self.deaf_destroys = 0  # this many destroy calls are acknowledged without effect
        self.balance: Any = 25.0
        self.limits = False  # whether calls above the documented pace are turned away
        self.latency = 0.2
        self.dead_man = True
        self.ssh: tuple[str, int] | None = None  # a real server in place of made-up addresses
        self.on_make: Callable[[Machine], None] = lambda machine: None
        self.root = ""  # where its logs are fetched
        self.logs: dict[int, str] = {}
        self.armed = "yes"
        self.calls: list[tuple[str, str]] = []
        self.rents = 0
        self._last: dict[str, float] = {}
        self._ids = itertools.count(7001)
        self._ports = itertools.count(40000, 7)

    # -- what tests ask -------------------------------------------------------------------

    def alive(self) -> list[Machine]:
        """Machines that bill for anything now."""
        with self.lock:
            self._dead_men()
            return [machine for machine in self.machines.values() if machine.ended is None]

    def bill(self) -> float:
        """Dollars of all machines until now."""
        return sum(self._bill(machine) for machine in self.machines.values())

    def _bill(self, machine: Machine) -> float:
        until = machine.ended if machine.ended is not None else self.clock.now()
        gpu = machine.running_for + self._ran(machine, until)
        storage = machine.offer["storage_cost"] * machine.body["disk"] / 720
        return (gpu * machine.offer["dph_base"] + (until - machine.made) * storage) / 3600

    def _ran(self, machine: Machine, until: float) -> float:
        """Seconds of running since the last start; what is loading is not billed."""
        runs = next((at for at, state in machine.path if state == "running"), None)
        if runs is None or not machine.wants_running:
            return 0.0
        return max(0.0, until - machine.started - runs)

    # -- requests -------------------------------------------------------------------------

    def answer(self, method: str, path: str, query: Json, body: Any, key: str) -> Reply:
        """One request; takes virtual time."""
        with self.lock:
            self.clock.sleep(self.latency)
            self._dead_men()
            kind = kind_of(method, path)
            self.calls.append((kind, path))
            own = self._own_key(method, path, key)
            if key != KEY and not own:
                # The vendor says 404 for a bad key at the list.
                status = 404 if kind == "list" else 401
                return status, fault_body("auth_error", "Invalid user key")
            if self._too_often(kind):
                return 429, "API requests too frequent"
            handle = getattr(self, f"_{kind}", None)
            return (
                (404, "<html>no such page</html>") if handle is None else handle(path, query, body)
            )

    def _own_key(self, method: str, path: str, key: str) -> bool:
        """A machine's own key may end that machine and nothing else."""
        parts = path.strip("/").split("/")
        return method == "DELETE" and key == f"own-{parts[-1]}"

    def _too_often(self, kind: str) -> bool:
        pace = {"show": 2.0, "list": 1.0, "change": 1.0, "rent": 4.5, "destroy": 3.0, "search": 6.0}
        now, last = self.clock.now(), self._last.get(kind, 0.0)
        # The call itself takes time, which the vendor does not hold against the caller.
        early = self.limits and now - last < pace.get(kind, 0.0) - self.latency
        if not early:
            self._last[kind] = now
        return early

    def _dead_men(self) -> None:
        for machine in self.machines.values():
            limit = min(machine.lease, machine.end)
            runs = self._state(machine) == "running" and machine.ended is None
            if self.dead_man and runs and self.clock.now() >= limit:
                machine.ended, machine.ended_itself = limit, True

    def _search(self, path: str, query: Json, body: Any) -> Reply:
        assert body["allocated_storage"] >= 8 and body["gpu_name"]["in"], body
        names = body["gpu_name"]["in"]
        return 200, {"offers": [offer for offer in self.offers if offer["gpu_name"] in names]}

    def _account(self, path: str, query: Json, body: Any) -> Reply:
        return 200, {"id": 1, "credit": self.balance, "balance": 0.0}

    def _rent(self, path: str, query: Json, body: Any) -> Reply:
        number = path.strip("/").split("/")[-1]
        self.rents += 1
        offer = next((o for o in self.offers if str(o["id"]) == number), None)
        if offer is None or not offer["rentable"]:
            return 410, fault_body("no_such_ask", f"ask {number} is no longer available")
        if body["disk"] < 8 or len(body["onstart"]) > 4096 or len(body["label"]) > 256:
            return 400, fault_body("invalid_args", "bad disk, onstart or label")
        machine = self.make(offer, body)
        return 200, {
            "success": True,
            "new_contract": machine.id,
            "instance_api_key": f"own-{machine.id}",
        }

    def make(self, offer: Json, body: Json) -> Machine:
        """A machine of that offer, as rented now."""
        path, messages = self.behaviour.get(offer["machine_id"], (HEALTHY, {}))
        now = self.clock.now()
        machine = Machine(next(self._ids), offer, body, now, path, messages, now, next(self._ports))
        numbers = body["onstart"].split("setsid sh ")[-1].split()
        if len(numbers) > 5:  # what the script is told: folder, API, grace, life
            machine.lease, machine.end = now + float(numbers[3]), now + float(numbers[4])
        offer["rentable"] = False
        self.machines[machine.id] = machine
        self.on_make(machine)
        return machine

    def _list(self, path: str, query: Json, body: Any) -> Reply:
        if not path.startswith("/api/v1"):
            return 410, fault_body("deprecated_endpoint", "use v1")
        now = self.clock.now()
        ids = [m.id for m in self.alive() if now - m.made >= self.hidden]
        first = int(query.get("after_token", "0") or 0)
        size = int(query.get("limit", 25))
        page = ids[first : first + size]
        following = str(first + size) if first + size < len(ids) else None
        return 200, {
            "success": True,
            "instances_found": len(page),
            "total_instances": len(ids),
            "label_counts": {},
            "next_token": following,
            "instances": [self.view(self.machines[number]) for number in page],
        }

    def _machine(self, path: str) -> Machine | None:
        machine = self.machines.get(int(path.strip("/").split("/")[3 if "ssh" in path else -1]))
        return machine if machine is not None and machine.ended is None else None

    def _show(self, path: str, query: Json, body: Any) -> Reply:
        machine = self._machine(path)
        return 200, {"instances": None if machine is None else self.view(machine)}

    def _change(self, path: str, query: Json, body: Any) -> Reply:
        machine = self._machine(path)
        if machine is None:
            return 404, fault_body("no_such_instance", "no such instance")
        if "ssh_key" in body:
            machine.keys.append(body["ssh_key"])
        elif body["state"] == "stopped":
            self._stop(machine)
        else:
            self._start(machine)
        return 200, {"success": True}

    def _log(self, path: str, query: Json, body: Any) -> Reply:
        machine = self._machine(path)
        if machine is None:
            return 404, fault_body("no_such_instance", "no such instance")
        return 200, {"success": True, "result_url": f"{self.root}/_logs/{machine.id}"}

    def _stop(self, machine: Machine) -> None:
        if machine.wants_running and not self.stop_hangs:
            machine.running_for += self._ran(machine, self.clock.now())
            machine.stopped, machine.wants_running = self.clock.now(), False

    def _start(self, machine: Machine) -> None:
        if machine.wants_running:
            return
        machine.wants_running = True
        machine.started = self.clock.now()
        machine.path = ((0.0, "exited"),) if self.gpu_taken else ((0.0, "exited"), (9.0, "running"))
        machine.ports = next(self._ports)
        machine.lease = max(machine.lease, machine.started + 2700)
        machine.end = max(machine.end, machine.started + 2700)

    def _destroy(self, path: str, query: Json, body: Any) -> Reply:
        machine = self._machine(path)
        if machine is None:
            return 404, fault_body("no_such_instance", "no such instance")
        if self.deaf_destroys:
            self.deaf_destroys -= 1
        else:
            machine.ended = self.clock.now()
        return 200, {"success": True}

    # -- what a machine looks like --------------------------------------------------------

    def _state(self, machine: Machine) -> str | None:
        now = self.clock.now()
        if not machine.wants_running:
            stopped = machine.stopped or 0.0
            return "exited" if now - stopped >= 6 else "running"
        passed = now - machine.started
        return [state for at, state in machine.path if passed >= at][-1]

    def view(self, machine: Machine) -> Json:
        """The vendor's JSON of one machine; address and ports are there only while it runs."""
        state = self._state(machine)
        runs = state == "running"
        port = machine.ports
        storage = machine.offer["storage_cost"] * machine.body["disk"] / 720
        host, ssh_port = self.ssh or (f"192.0.2.{port % 250}", port)
        message = machine.messages.get(state, "success, running image/ssh" if runs else None)
        return {
            "id": machine.id,
            "label": machine.body["label"],
            "actual_status": state,
            "intended_status": "running" if machine.wants_running else "stopped",
            "cur_state": state,
            "next_state": state,
            "status_msg": message,
            "gpu_name": machine.offer["gpu_name"],
            "machine_id": machine.offer["machine_id"],
            "host_id": machine.offer["host_id"],
            "dph_total": machine.offer["dph_base"] + storage,
            "storage_total_cost": storage,
            "disk_space": machine.body["disk"],
            "disk_usage": -1,
            "public_ipaddr": f" {host} " if runs else "",
            "ports": {
                "22/tcp": [{"HostIp": "0.0.0.0", "HostPort": str(ssh_port)}],
                "8080/tcp": [{"HostIp": "0.0.0.0", "HostPort": str(port + 1)}],
            }
            if runs
            else None,
            "ssh_host": "ssh5.vast.example" if runs else None,
            "ssh_port": port + 2 if runs else None,
            "start_date": machine.started,
            "extra_env": [],
        }

    def box(self, number: int, command: str) -> tuple[int, str]:
        """What the fleet's commands find on a running machine: its dead-man's files."""
        with self.lock:
            self._dead_men()
            machine = self.machines.get(number)
            if machine is None or machine.ended is not None or self._state(machine) != "running":
                return 255, ""
            now = self.clock.now()
            for name in ("lease", "end"):
                mark = f".ninfer/{name}.set &&"
                if mark in command:
                    seconds = command.split(mark)[0].rpartition("+ ")[2].split(")")[0]
                    setattr(machine, name, now + float(seconds))
            return 0, f"{self.armed}\n\n3\n" if "armed" in command else ""


def kind_of(method: str, path: str) -> str:
    """The vendor's name for what a request is about."""
    if "/bundles" in path:
        return "search"
    if "/asks/" in path:
        return "rent"
    if "/users/" in path:
        return "account"
    parts = path.strip("/").split("/")
    if "request_logs" in parts:
        return "log"
    if "instances" not in parts or parts[-1] == "instances":
        return "list" if "instances" in parts else "unknown"
    return {"GET": "show", "DELETE": "destroy"}.get(method, "change")


def fault_body(code: str, text: str) -> Json:
    return {"success": False, "error": code, "msg": text}


def offer(number: int, price: float = 0.30, **changes: Any) -> Json:
    """An offer that passes every criterion of an RTX 5090, unless changed."""
    return {
        "id": number,
        "machine_id": number + 500,
        "host_id": number + 900,
        "gpu_name": "RTX 5090",
        "num_gpus": 1,
        "gpu_ram": 32607,
        "compute_cap": 1200,
        "cuda_max_good": 13.1,
        "disk_space": 400.0,
        "inet_down": 4000.0,
        "inet_up": 900.0,
        "inet_down_cost": 0.002,
        "reliability2": 0.998,
        "verification": "verified",
        "direct_port_count": 20,
        "dph_base": price,
        "storage_cost": 0.1,
        "dph_total": price + 80 * 0.1 / 720,
        "duration": 30 * 86400.0,
        "geolocation": "Sweden, SE",
        "rentable": True,
        **changes,
    }
