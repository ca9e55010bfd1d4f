"""The driver, the cards, who else is on them, and what the environment hides."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from ninfer.selftest.symptom import Symptom, bad, note, ok

OLDEST: Final = 80
_LIMIT_S: Final = 20
_QUERY: Final = ("index", "name", "compute_cap", "memory.total", "memory.used", "driver_version")


@dataclass(frozen=True, slots=True)
class Device:
    """One card as the driver tells of it; memory in MiB."""

    index: int
    name: str
    capability: int  # times ten
    total: int
    used: int
    driver: str


def asked_smi(*arguments: str) -> list[list[str]] | str:
    """Rows of what nvidia-smi answers to a query, or why there are none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "nvidia-smi is not on PATH"
    command = [program, *arguments, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi does not answer ({type(error).__name__})"
    if done.returncode:
        said = (done.stdout.strip() or done.stderr.strip() or "no message").splitlines()[0]
        return f"nvidia-smi fails: {said}"
    rows = [line for line in done.stdout.splitlines() if line.strip()]
    return [[part.strip() for part in row.split(",")] for row in rows]


def devices() -> list[Device] | str:
    """The cards of the machine, hidden ones included, or why they cannot be told."""
    rows = asked_smi(f"--query-gpu={','.join(_QUERY)}")
    if isinstance(rows, str):
        return rows
    found = []
    for row in rows:
        try:
            index, name, capability, total, used, driver = row
            number = round(10 * float(capability))
            found.append(Device(int(index), name, number, int(total), int(used), driver))
        except ValueError:
            return f"nvidia-smi answers {', '.join(row)!r}, which is not understood"
    return found


def driver_and_torch(found: list[Device] | str) -> Iterator[Symptom]:
    """Whether there is a card, and whether this torch can use it."""
    kernel = Path("/proc/driver/nvidia/version").exists()
    if isinstance(found, str):
        if kernel:
            yield bad("driver", f"is loaded, but {found}", "install the driver's own tools again")
        else:
            yield note("driver", f"no NVIDIA driver ({found}); the CPU is used")
    elif not found:
        yield bad("driver", "sees no card", "check that the card is seated, powered and passed on")
    else:
        yield ok("driver", f"{found[0].driver}, {len(found)} cards")
    has_cards = bool(found) and not isinstance(found, str)
    cuda = torch.version.cuda
    if cuda is None and (has_cards or kernel):
        yield bad(
            "torch",
            f"{torch.__version__} is built for CPUs, so no card is used",
            "pip install --force-reinstall torch from PyPI, whose build has CUDA",
        )
    elif cuda is None:
        yield ok("torch", f"{torch.__version__}, for CPUs")
    elif torch.cuda.is_available():
        yield ok("torch", f"{torch.__version__} with CUDA {cuda} sees {_seen()} cards")
    elif has_cards and not _hides_all():
        yield bad(
            "torch",
            f"{torch.__version__} needs a driver for CUDA {cuda}, and cannot use this one",
            f"update the NVIDIA driver to one for CUDA {cuda}, or take a torch for an older CUDA",
        )


def _seen() -> int:
    return int(torch.cuda.device_count())


def _hides_all() -> bool:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1", "NoDevFiles")


def visible(found: list[Device] | str) -> Iterator[Symptom]:
    """CUDA_VISIBLE_DEVICES against the cards that there are."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return
    name = "CUDA_VISIBLE_DEVICES"
    if _hides_all():
        yield bad(name, f"is {value!r}: every card is hidden", f"unset {name}")
        return
    count = 0 if isinstance(found, str) else len(found)
    numbers = [part.strip() for part in value.split(",")]
    wrong = [part for part in numbers if part.isdigit() and int(part) >= count]
    if wrong:
        yield bad(
            name,
            f"is {value!r}, but the machine has {count} cards; from {wrong[0]} on all are hidden",
            f"unset {name}, or name cards below {count}",
        )
    else:
        yield note(name, f"is {value!r}: only these cards are seen")


def each_card(found: list[Device] | str) -> Iterator[Symptom]:
    """Capability and free memory."""
    for card in found if not isinstance(found, str) else ():
        name = f"card {card.index}"
        shown = f"{card.name}, sm_{card.capability}, {card.total - card.used:,} MiB free"
        text = f"{shown} of {card.total:,}"
        if card.capability < OLDEST:
            yield bad(name, text, "ninfer's kernels need a card from sm_80 (Ampere) on")
        elif card.used > card.total // 20:
            yield note(name, text, "other programs hold memory; see 'processes', or take less")
        else:
            yield ok(name, text)


def processes(found: list[Device] | str) -> Iterator[Symptom]:
    """Who else computes on the cards."""
    if isinstance(found, str) or not found:
        return
    rows = asked_smi("--query-compute-apps=pid,used_memory,name")
    if isinstance(rows, str):
        yield note("processes", rows)
        return
    others = [row for row in rows if row[0] != str(os.getpid())]
    if not others:
        yield ok("processes", "no other on the cards")
        return
    listed = "; ".join(f"{Path(row[2]).name} (pid {row[0]}, {row[1]} MiB)" for row in others[:8])
    yield note("processes", listed, "end those that are not needed; rates suffer from them")
