"""What was measured on: processor, threads, versions and source revision."""

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch

from ninfer.version import VERSION


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything beside the measured code that a number depends on."""

    device: str
    threads: int
    cores: int
    system: str
    python: str
    torch: str
    ninfer: str
    revision: str


def this_machine(device: str = "cpu") -> Machine:
    """Describe where a benchmark runs; `device` is "cpu" or "cuda:N"."""
    return Machine(
        device=device_name(device),
        threads=torch.get_num_threads(),
        cores=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=torch.__version__,
        ninfer=VERSION,
        revision=revision(Path(__file__).parent),
    )


def has_card() -> bool:
    """Whether there is a CUDA device."""
    return torch.cuda.is_available()


def device_name(device: str) -> str:
    """The card's name, or the processor's as the system states it."""
    if device != "cpu":
        return torch.cuda.get_device_name(device)
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


def revision(folder: Path) -> str:
    """Commit of the checkout that holds `folder`, with "-dirty" for local changes.

    "installed" when the code does not run from a checkout or there is no git.
    """
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "installed"
    return done.stdout.strip() if done.returncode == 0 else "installed"
