"""Other clouds through SkyPilot: its clusters of one machine, named by our label."""

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ninfer.cards import cards_named
from ninfer.errors import HostBrokenError, ProviderError, RefusedError
from ninfer.fleet.box import Ran, as_bytes, as_text
from ninfer.fleet.failures import NO_SSH
from ninfer.fleet.provider import Address, Need, Offer, Phase, Snapshot, Spec
from ninfer.fleet.sky_command import SkyCommand

SKY: Final = "sky"
_PHASES: Final = {
    "PENDING": Phase.REQUESTED,
    "INIT": Phase.STARTING,
    "UP": Phase.RUNNING,
    "AUTOSTOPPING": Phase.RUNNING,
    "STOPPED": Phase.STOPPED,
}
_LAUNCH_SECONDS: Final = 1800.0
# Clouds charge disks apart, and the catalogue does not say how much: more than any of them does.
_DISK_PRICE: Final = 0.30 / 720  # $/h and GB
_FOREVER: Final = 1e12


class Sky:
    """Provider of clusters. Each runs one job, the dead-man; when it ends, SkyPilot downs them."""

    name = SKY
    bills = True

    def __init__(self, command: SkyCommand) -> None:
        self._sky = command

    def offers(self, need: Need) -> list[Offer]:
        """The catalogue's prices on demand, one for each place.

        What a data centre does not state is taken as asked for: disk comes in any size, and the
        machine itself is looked at before anything is put on it.
        """
        found: list[Offer] = []
        for name in sorted({plain.replace(" ", "") for plain in need.gpu_names}):
            catalogue = self._sky.ask("gpus", "list", name, "--all-regions")
            if not isinstance(catalogue, Mapping):
                raise ProviderError("sky gpus: an answer of a shape nobody knows")
            for entries in catalogue.values():
                if not isinstance(entries, list):
                    raise ProviderError("sky gpus: an answer of a shape nobody knows")
                found += [_offer(entry, need) for entry in entries if _is_offer(entry)]
        return list({offer.id: offer for offer in found}.values())

    def balance(self) -> float | None:
        """Clouds send bills; none of them tells of a credit."""
        return None

    def rent(self, offer: Offer, spec: Spec) -> str:
        """Launch a cluster named by the label, and wait until it is up; see Provider.rent."""
        cloud, region, kind, card = offer.id.split("/")
        task = {
            "name": "ninfer",
            "run": spec.start,
            "resources": {
                "infra": f"{cloud.lower()}/{region}",
                "instance_type": kind,
                "accelerators": f"{card}:1",
                "disk_size": int(spec.disk),
                "image_id": f"docker:{spec.image}",
            },
        }
        with tempfile.TemporaryDirectory(prefix="ninfer-sky-") as folder:
            path = Path(folder) / "task.yaml"
            path.write_text(json.dumps(task), encoding="utf-8")  # JSON is YAML
            self._sky.launch(
                [
                    *("launch", "--yes", "--detach-run", "--cluster", spec.label),
                    *("--idle-minutes-to-autostop", "1", "--down", str(path)),
                ],
                _LAUNCH_SECONDS,
            )
        return spec.label

    def get(self, machine_id: str) -> Snapshot | None:
        """The cluster of that name, out of the whole list."""
        return next((shot for shot in self.machines() if shot.id == machine_id), None)

    def machines(self) -> list[Snapshot]:
        """All clusters, as the clouds say now."""
        clusters = self._sky.ask("status", "--refresh")
        if not isinstance(clusters, list):
            raise ProviderError("sky status: an answer of a shape nobody knows")
        return [_snapshot(cluster) for cluster in clusters]

    def start(self, machine_id: str) -> None:
        """Refused: a machine whose job does not run again could not end itself."""
        raise RefusedError(
            "SkyPilot's machines are neither stopped nor started: their dead-man would not run "
            f"again; 'ninfer destroy' ends {machine_id}, 'ninfer create' makes another"
        )

    def stop(self, machine_id: str) -> None:
        """Refused for the same reason."""
        self.start(machine_id)

    def destroy(self, machine_id: str) -> None:
        """Take it down; one that is listed no more counts as done."""
        try:
            self._sky.tell("down", "--yes", machine_id)
        except RefusedError:
            if self.get(machine_id) is not None:
                raise

    def admit_key(self, machine_id: str, public_key: str) -> None:
        """SkyPilot's own key lets in, by what it writes into the user's SSH configuration."""

    def log(self, machine_id: str, lines: int) -> str:
        """Host keys are SkyPilot's business."""
        return ""


class SkyBox:
    """A shell by the system's ssh, to the host that SkyPilot put into the user's configuration."""

    def __init__(self, name: str, host: str) -> None:
        self._name, self._host = name, host

    def run(self, command: str, *, stdin: str | bytes = "", timeout: float = 60.0) -> Ran:
        """Run a shell command; see Box.run."""
        line = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", self._host, command]
        try:
            done = subprocess.run(line, input=as_bytes(stdin), capture_output=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            return Ran(-1, "", "")
        except FileNotFoundError:
            raise HostBrokenError(
                "ssh: not on PATH; install the OpenSSH client", category=""
            ) from None
        if done.returncode == 255:  # ssh's own failure
            text = " ".join(as_text(done.stderr).split())[-200:]
            raise HostBrokenError(f"{self._name}: ssh: {text}", category=NO_SSH.category)
        return Ran(done.returncode, as_text(done.stdout), as_text(done.stderr))

    def close(self) -> None:
        """Nothing is held open."""


def _is_offer(entry: Any) -> bool:
    price = entry.get("price") if isinstance(entry, Mapping) else None
    return isinstance(price, int | float) and price > 0 and bool(entry.get("instance_type"))


def _offer(entry: Mapping[str, Any], need: Need) -> Offer:
    card, count = str(entry["accelerator_name"]), entry.get("accelerator_count")
    memory = entry.get("device_memory")
    cards = cards_named(card)
    gigabytes = memory or (min(one.memory_gib for one in cards) if cards else None)
    disk = need.disk * _DISK_PRICE
    return Offer(
        id=f"{entry['cloud']}/{entry['region']}/{entry['instance_type']}/{card}",
        machine="",
        host=str(entry["cloud"]),
        gpu=card,
        gpus=int(count) if isinstance(count, int | float) else None,
        gpu_ram=None if gigabytes is None else float(gigabytes) * 1024,
        disk=need.free_disk,
        inet_down=need.inet_down,
        down_cost=0.0,
        reliability=1.0,
        cuda=need.cuda,
        direct_ports=1,
        verified=True,
        rentable=True,
        price=float(entry["price"]) + disk,
        disk_price=disk,
        ends=_FOREVER,
        place=f"{entry['cloud']} {entry['region']}",
    )


def _snapshot(cluster: Any) -> Snapshot:
    name = cluster.get("name") if isinstance(cluster, Mapping) else None
    status = cluster.get("status") if isinstance(cluster, Mapping) else None
    if not isinstance(name, str) or not isinstance(status, str):
        raise ProviderError("sky status: a cluster of a shape nobody knows")
    place = "/".join(str(cluster.get(key) or "") for key in ("cloud", "region"))
    return Snapshot(
        id=name,
        label=name,
        phase=_PHASES.get(status, Phase.UNKNOWN),
        status=status,
        message=str(cluster.get("resources_str") or ""),
        gpu="",
        machine="",
        host=place,
        price=None,
        disk_price=None,
        ssh=Address(name, 22) if status == "UP" else None,
        wants_running=status != "STOPPED",
    )
