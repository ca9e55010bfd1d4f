"""Machines of one's own, by SSH or this very one: the same verbs, and nothing to pay."""

import re
import subprocess
from collections.abc import Callable
from typing import Final

from ninfer.errors import (
    HostBrokenError,
    OutcomeUnknownError,
    ProviderError,
    RefusedError,
    UsageError,
)
from ninfer.fleet.box import Box, Ran, as_bytes, as_text
from ninfer.fleet.contract import alias_of
from ninfer.fleet.provider import Address, Need, Offer, Phase, Snapshot, Spec

LOCAL: Final = "local"
# Below the home folder of the user that we are there.
_FOLDER: Final = '"$HOME"/.ninfer'
_MARKS: Final = f"{_FOLDER}/machines"
_LABEL: Final = re.compile(r"[a-z0-9.-]+")
_HOST: Final = re.compile(
    r"(?:(\w[A-Za-z0-9._-]*)@)?(\w[A-Za-z0-9._-]*|\[[0-9a-fA-F:]+\])(?::(\d{1,5}))?", re.ASCII
)


def own_address(host: str) -> Address:
    """`[USER@]HOST[:PORT]` as an address. Raises UsageError."""
    match = _HOST.fullmatch(host)
    port = int(match[3] or 22) if match else 0
    if match is None or not 0 < port < 65536:
        raise UsageError(f"--host {host!r}: must be [USER@]HOST[:PORT]")
    return Address(match[2].strip("[]"), port, match[1] or "root")


class LocalBox:
    """A shell on this machine."""

    def run(self, command: str, *, stdin: str | bytes = "", timeout: float = 60.0) -> Ran:
        """Run a shell command; see Box.run."""
        try:
            done = subprocess.run(
                ["sh", "-c", command], input=as_bytes(stdin), capture_output=True, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            return Ran(-1, "", "")
        return Ran(done.returncode, as_text(done.stdout), as_text(done.stderr))

    def close(self) -> None:
        """Nothing is held open."""


class OwnMachine:
    """One machine, on which at most one deployment lies, marked by a folder with its label.

    `rent` makes the mark and `destroy` removes it, with all that was put below it.
    """

    bills = False

    def __init__(self, name: str, address: Address | None, opening: Callable[[], Box]) -> None:
        self.name = name
        self._address = address
        self._opening = opening

    def _run(self, command: str) -> str:
        """The output of a command. Raises ProviderError if the machine cannot be asked."""
        try:
            box = self._opening()
            try:
                ran = box.run(command)
            finally:
                box.close()
        except HostBrokenError as error:
            raise ProviderError(f"{self.name}: {error}") from None
        if ran.status != 0:
            said = " ".join(ran.err.split())[:300]
            raise ProviderError(f"{self.name}: status {ran.status}: {said}; nothing was concluded")
        return ran.out

    def offers(self, need: Need) -> list[Offer]:
        """The machine itself, as it is: card by its driver, free disk of the home folder."""
        card, memory = "", None
        asked = self._run(
            'df -Pk "$HOME" | tail -n 1; if command -v nvidia-smi >/dev/null; then '
            "nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits; fi"
        ).splitlines()
        if len(asked) > 1:
            card, _, megabytes = asked[1].partition(",")
            memory = float(megabytes) if megabytes.strip().isdigit() else None
        free = asked[0].split()[3] if asked and len(asked[0].split()) > 3 else ""
        return [
            Offer(
                id=self.name,
                machine="",
                host=alias_of(self.name),
                gpu=card.strip(),
                gpus=max(0, len(asked) - 1),
                gpu_ram=memory,
                disk=int(free) / 1e6 if free.isdigit() else None,
                inet_down=None,
                down_cost=0.0,
                reliability=None,
                cuda=None,
                direct_ports=None,
                verified=True,
                rentable=True,
                price=0.0,
                disk_price=0.0,
                ends=None,
                place="own",
            )
        ]

    def balance(self) -> float | None:
        """There is no credit to have."""
        return None

    def rent(self, offer: Offer, spec: Spec) -> str:
        """Mark the machine as ours. Raises RefusedError when a deployment is there already."""
        assert _LABEL.fullmatch(spec.label), spec.label
        try:
            out = self._run(
                f"umask 077; mkdir -p {_FOLDER} && if mkdir {_MARKS} 2>/dev/null; then "
                f"mkdir {_MARKS}/{spec.label}; else ls {_MARKS}; echo taken; fi"
            )
        except ProviderError as error:
            raise OutcomeUnknownError(str(error)) from None
        if "taken" in out.split():
            other = out.split()[0]
            raise RefusedError(
                f"{self.name}: {other} lies there already; 'ninfer status' shows it, end it first"
            )
        return spec.label

    def machines(self) -> list[Snapshot]:
        """The deployment, if there is one."""
        out = self._run(
            f'if [ -d {_MARKS} ]; then cd {_MARKS} && for m in *; do [ -d "$m" ] || continue; '
            'if [ -e "$m/stopped" ]; then echo "$m stopped"; else echo "$m running"; fi; done; fi; '
            "echo end"
        )
        lines = out.splitlines()
        if lines[-1:] != ["end"] or not all(len(line.split()) == 2 for line in lines[:-1]):
            raise ProviderError(f"{self.name}: its list of deployments is not whole")
        return [self._snapshot(*line.split()) for line in lines[:-1]]

    def _snapshot(self, label: str, state: str) -> Snapshot:
        return Snapshot(
            id=label,
            label=label,
            phase=Phase.RUNNING if state == "running" else Phase.STOPPED,
            status=state,
            message="",
            gpu="",
            machine="",
            host=alias_of(self.name),
            price=0.0,
            disk_price=0.0,
            ssh=self._address,
            wants_running=state == "running",
        )

    def get(self, machine_id: str) -> Snapshot | None:
        """The deployment with that label."""
        return next((shot for shot in self.machines() if shot.id == machine_id), None)

    def start(self, machine_id: str) -> None:
        """Mark it as running."""
        self._run(f"rm -f {self._mark(machine_id)}/stopped")

    def stop(self, machine_id: str) -> None:
        """Run the deployment's own `stop` script, if it has one, and mark it as stopped."""
        mark = self._mark(machine_id)
        self._run(f"if [ -e {mark}/stop ]; then sh {mark}/stop; fi && touch {mark}/stopped")

    def destroy(self, machine_id: str) -> None:
        """Stop it and remove what lies below its mark."""
        mark = self._mark(machine_id)
        self._run(
            f"if [ -e {mark}/stop ]; then sh {mark}/stop; fi && rm -rf {mark} && "
            f"if [ -d {_MARKS} ]; then rmdir {_MARKS}; fi"
        )

    def _mark(self, machine_id: str) -> str:
        assert _LABEL.fullmatch(machine_id), machine_id
        return f"{_MARKS}/{machine_id}"

    def admit_key(self, machine_id: str, public_key: str) -> None:
        """We are let in already."""

    def log(self, machine_id: str, lines: int) -> str:
        """A machine of one's own has no log of a container."""
        return ""
