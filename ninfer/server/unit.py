"""A systemd unit for a server: secrets from a file of its own, and no more rights than it needs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ninfer.errors import UsageError

# Options whose values others could read in the unit and in process lists.
_SECRET: Final = ("--api-key",)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Unit:
    """One server as a service.

    `arguments` are those of `ninfer serve`, the artifact first, all paths absolute. A system unit
    runs as `account`; a user's own has None.
    """

    name: str
    python: str
    arguments: tuple[str, ...]
    environment_file: Path
    drain_seconds: int
    account: str | None = None

    def text(self) -> str:
        """The unit file. Raises UsageError for a name or an argument that a unit cannot have."""
        check_unit(self)
        command = " ".join(map(quoted, (self.python, "-P", "-m", "ninfer", "serve")))
        values = " ".join(map(quoted, self.arguments))
        account = [] if self.account is None else [f"User={self.account}", *_SYSTEM_ONLY]
        target = "default.target" if self.account is None else "multi-user.target"
        lines = [
            "[Unit]",
            f"Description=ninfer server {self.name}",
            *([] if self.account is None else _AFTER_NETWORK),
            "StartLimitIntervalSec=300",
            "StartLimitBurst=5",
            "",
            "[Service]",
            "Type=exec",
            f"ExecStart={command} {values}",
            f"EnvironmentFile=-{escaped(str(self.environment_file))}",
            "Environment=PYTHONUNBUFFERED=1",
            "Restart=on-failure",
            "RestartSec=2",
            f"TimeoutStopSec={self.drain_seconds + 15}",
            "LimitNOFILE=65536",
            "CacheDirectory=ninfer",
            "Environment=XDG_CACHE_HOME=%C TRITON_CACHE_DIR=%C/ninfer/triton",
            *account,
            *_HARDENING,
            "",
            "[Install]",
            f"WantedBy={target}",
        ]
        return "\n".join(lines) + "\n"


_AFTER_NETWORK: Final = ("Wants=network-online.target", "After=network-online.target")
# What a user's own manager may not do, or only where users may have namespaces.
_SYSTEM_ONLY: Final = (
    "CapabilityBoundingSet=",
    "AmbientCapabilities=",
    "DevicePolicy=closed",
    "DeviceAllow=char-nvidia rw",
    "DeviceAllow=char-nvidia-uvm rw",
    "DeviceAllow=char-nvidia-frontend rw",
    "ProtectClock=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectHostname=yes",
    "ProtectProc=invisible",
    "PrivateTmp=yes",
    "ProtectHome=read-only",
    "ProtectSystem=strict",
    "ProtectControlGroups=yes",
    "ProtectKernelTunables=yes",
)
# Compilers make code at run time, so memory stays executable; all else that serving does not need
# is taken away.
_HARDENING: Final = (
    "NoNewPrivileges=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "LockPersonality=yes",
    "SystemCallArchitectures=native",
    "UMask=0077",
)


def check_unit(unit: Unit) -> None:
    """Raise UsageError for what must not stand in a unit."""
    if not _NAME.fullmatch(unit.name):
        raise UsageError(f"--name {unit.name}: letters, digits, '_', '.' and '-' only, at most 64")
    refuse_secrets(unit.arguments, unit.environment_file)
    for value in (unit.python, *unit.arguments):
        if "\n" in value or "\0" in value:
            raise UsageError(f"{value!r}: a unit cannot hold a line break")


def refuse_secrets(arguments: Sequence[str], environment_file: Path) -> None:
    """Raise UsageError when a key is among the options of a server."""
    for argument in arguments:
        flag = argument.split("=", 1)[0]
        if flag in _SECRET:
            raise UsageError(
                f"{flag}: others can read a unit and a command line; write NINFER_API_KEY=... into "
                f"{environment_file}, or use --api-key-file"
            )


def quoted(value: str) -> str:
    """One argument of ExecStart, as systemd.service(5) wants it."""
    value = escaped(value).replace("$", "$$")
    if value and not re.search(r"[\s\"'\\;]", value):
        return value
    inner = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inner}"'


def escaped(value: str) -> str:
    """Text in which systemd finds no specifier."""
    return value.replace("%", "%%")


def first_environment(name: str) -> str:
    """What a new environment file holds."""
    return (
        f"# Variables of the ninfer server {name}; readable by its owner only.\n# NINFER_API_KEY=\n"
    )
