"""SSH keys: the public half that a machine gets, and the host keys that are pinned for each."""

import re
from pathlib import Path
from typing import Final

from ninfer.errors import UsageError, VerificationError
from ninfer.fleet.contract import Contract
from ninfer.fleet.dead_man import HOST_KEY
from ninfer.fleet.provider import Address

_PUBLIC: Final = re.compile(
    r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp\d{3}|sk-[a-z0-9@.-]+) ([A-Za-z0-9+/]{40,}={0,2})( .*)?"
)


def public_key(private: Path) -> str:
    """The content of the `.pub` file beside a private key: kind, key, comment, on one line.

    Raises UsageError naming the file and how to make it.
    """
    path = private.with_name(private.name + ".pub")
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise UsageError(
            f"{path}: no public key there; make one: ssh-keygen -y -f {private} > {path}"
        ) from None
    if not _PUBLIC.fullmatch(text):
        raise UsageError(f"{path}: not one public key of SSH; NINFER_SSH_KEY is its private half")
    return text


def known_hosts(records: Path, alias: str) -> Path:
    """The file of a machine's host keys; its lines carry the alias in place of an address."""
    return records / "hosts" / alias


def pin(records: Path, alias: str, keys: list[str]) -> None:
    """Write the host keys of a machine, each `kind base64`, once. Raises VerificationError.

    Keys that are there already stay: a machine keeps its keys for life, so others are not its own.
    """
    path = known_hosts(records, alias)
    lines = sorted(f"{alias} {' '.join(key.split()[:2])}" for key in keys)
    if path.exists():
        if not set(lines) & set(path.read_text().splitlines()):
            raise VerificationError(
                f"{alias}: the host key changed; somebody may stand between. If the machine was "
                f"made anew, remove {path}"
            )
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.write_text("".join(line + "\n" for line in lines))
    fresh.replace(path)


def host_keys_in(log: str) -> list[str]:
    """Host keys that a container printed at its start, each `kind base64`."""
    found = (line.partition(HOST_KEY + " ") for line in log.splitlines())
    keys = [rest.strip() for _, mark, rest in found if mark]
    return [" ".join(key.split()[:2]) for key in keys if _PUBLIC.fullmatch(key)]


def ssh_command(private: Path, records: Path, contract: Contract, address: Address) -> list[str]:
    """The system's `ssh`, as arguments up to the host; a machine not pinned yet is on first use."""
    pinned = known_hosts(records, contract.host_alias)
    pinned.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = {
        "UserKnownHostsFile": str(pinned),
        "HostKeyAlias": contract.host_alias,
        "StrictHostKeyChecking": "yes" if pinned.exists() else "accept-new",
        "IdentitiesOnly": "yes",
        "ConnectTimeout": "10",
        "ServerAliveInterval": "15",
    }
    flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    return [
        "ssh",
        *flags,
        "-i",
        str(private),
        "-p",
        str(address.port),
        f"{address.user}@{address.host}",
    ]
