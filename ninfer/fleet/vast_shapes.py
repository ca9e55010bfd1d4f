"""The vendor's JSON as offers and snapshots; what is missing is None, never zero."""

import math
from collections.abc import Mapping
from typing import Any, Final

from ninfer.fleet.provider import Address, Offer, Phase, Snapshot

PHASES: Final = {
    None: Phase.REQUESTED,
    "created": Phase.STARTING,
    "loading": Phase.PULLING,
    "running": Phase.RUNNING,
    "rebooting": Phase.STARTING,
    "stopped": Phase.STOPPED,
    "exited": Phase.STOPPED,
    "frozen": Phase.FROZEN,
    "unknown": Phase.UNKNOWN,
    "offline": Phase.OFFLINE,
}


def read_offer(row: Mapping[str, Any], disk: float, now: float) -> Offer | None:
    """An offer whose price includes `disk` GB; None without a number, machine or host.

    The vendor's total holds for the disk that was asked for, so that storage is not added again.
    """
    ids = [_id(row.get(name)) for name in ("id", "machine_id", "host_id")]
    if None in ids:
        return None
    storage = number(row.get("storage_cost"))
    ends = number(row.get("end_date"))
    lasts = number(row.get("duration"))
    if ends is None and lasts is not None:
        ends = now + lasts
    return Offer(
        id=str(ids[0]),
        machine=str(ids[1]),
        host=str(ids[2]),
        gpu=str(row.get("gpu_name") or ""),
        gpus=_whole(row.get("num_gpus")),
        gpu_ram=number(row.get("gpu_ram")),
        disk=number(row.get("disk_space")),
        inet_down=number(row.get("inet_down")),
        down_cost=number(row.get("inet_down_cost")),
        reliability=_first(number(row.get("reliability2")), number(row.get("reliability"))),
        cuda=number(row.get("cuda_max_good")),
        direct_ports=_whole(row.get("direct_port_count")),
        verified=row.get("verification") == "verified" or row.get("verified") is True,
        rentable=row.get("rentable") is True,
        price=number(row.get("dph_total")),
        disk_price=None if storage is None else storage * disk / 720,
        ends=ends,
        place=str(row.get("geolocation") or ""),
    )


def read_snapshot(row: Any) -> Snapshot | None:
    """A machine; None if it is not even an object with a number."""
    if not isinstance(row, Mapping) or _id(row.get("id")) is None:
        return None
    status = row.get("actual_status")
    known = status if status is None or isinstance(status, str) else "?"
    return Snapshot(
        id=str(row["id"]),
        label=str(row.get("label") or ""),
        phase=PHASES.get(known, Phase.UNKNOWN),
        status="null" if status is None else str(status),
        message=" ".join(str(row.get("status_msg") or "").split())[:300],
        gpu=str(row.get("gpu_name") or ""),
        machine=str(row.get("machine_id") or ""),
        host=str(row.get("host_id") or ""),
        price=number(row.get("dph_total")),
        disk_price=number(row.get("storage_total_cost")),
        ssh=_ssh_address(row),
        wants_running=row.get("intended_status") == "running",
        disk=number(row.get("disk_space")),
        disk_used=number(row.get("disk_usage")),
        api=_mapped(row, "8080/tcp"),
    )


def number(value: Any) -> float | None:
    """A finite JSON number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _id(value: Any) -> int | None:
    whole = _whole(value)
    return whole if whole is not None and whole > 0 else None


def _first(one: float | None, other: float | None) -> float | None:
    return other if one is None else one


def _mapped(row: Mapping[str, Any], port: str) -> Address | None:
    """Where a port of the container is reached from outside; the address may carry blanks."""
    host = str(row.get("public_ipaddr") or "").strip()
    ports = row.get("ports")
    entries = ports.get(port) if isinstance(ports, Mapping) else None
    if not host or not isinstance(entries, list) or not entries:
        return None
    first = entries[0]
    return _address(host, first.get("HostPort") if isinstance(first, Mapping) else None)


def _ssh_address(row: Mapping[str, Any]) -> Address | None:
    """The mapped port 22, which is direct, else the vendor's proxy."""
    direct = _mapped(row, "22/tcp")
    return direct or _address(str(row.get("ssh_host") or "").strip(), row.get("ssh_port"))


def _address(host: str, port: Any) -> Address | None:
    text = str(port)
    if not host or not text.isdigit() or not 0 < int(text) < 65536:
        return None
    return Address(host, int(text))
