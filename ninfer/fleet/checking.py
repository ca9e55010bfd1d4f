"""A machine looked at before anything is put on it: card, driver, disk, programs."""

from dataclasses import dataclass
from typing import Final

from ninfer.errors import HostBrokenError
from ninfer.fleet.plans import Plan
from ninfer.fleet.stages import Link

# CUDA 13 needs it.
LEAST_DRIVER: Final = 580
_SPARE: Final = 2 * 10**9
# A kit with its packages, of which torch and its libraries are nearly all.
_KIT: Final = 1 * 10**9
_PACKAGES: Final = 12 * 10**9

_LOOK: Final = """df -Pk . | tail -n 1 | tr -s ' ' | cut -d' ' -f4
for word in flock setsid sha256sum stat; do
  command -v $word > /dev/null || printf '%s ' $word; done; echo
du -sk models venvs 2>/dev/null | cut -f1 | tr '\\n' ' '; echo
if command -v nvidia-smi > /dev/null; then
  nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader; fi
"""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a machine has. `free` and `held` in bytes; `capability` is 0 without a card."""

    free: int
    held: int
    card: str
    driver: int
    capability: int


def look(link: Link) -> Facts:
    """Ask the machine. Raises HostBrokenError when it lacks what every Linux has, or answers
    otherwise."""
    out = link.need(_LOOK).split("\n")
    try:
        free, missing, held = int(out[0]) * 1024, out[1].split(), out[2].split()
        words = [word.strip() for word in out[3].split(",")] if out[3:] and out[3] else []
        card, driver, capability = words or ("", "0", "0")
        facts = Facts(
            free,
            sum(map(int, held)) * 1024,
            card,
            int(driver.partition(".")[0]),
            round(10 * float(capability)),
        )
    except (ValueError, IndexError):
        said = " ".join(" ".join(out).split())[:300]
        raise HostBrokenError(f"the machine answers strangely: {said}", category="") from None
    if missing:
        raise HostBrokenError(f"the machine lacks {', '.join(missing)}", category="programs")
    return facts


def room_for(plan: Plan) -> int:
    """Bytes that a plan takes on a machine that has nothing of it yet."""
    artifact = plan.artifact.stat().st_size if plan.artifact else int(plan.model.bytes)
    return _SPARE + _KIT + artifact + (0 if plan.python else _PACKAGES)


def judge(plan: Plan, facts: Facts) -> None:
    """Refuse a machine on which the plan cannot work. Raises HostBrokenError with the numbers."""
    room = room_for(plan)
    if facts.free + facts.held < room:
        raise HostBrokenError(
            f"{facts.free:,} bytes are free on the machine, {room - facts.held:,} are needed; "
            "--disk asks for more",
            category="disk",
        )
    if not plan.architecture:
        return
    if not facts.card:
        raise HostBrokenError("the machine shows no card", category="gpu-injection")
    if facts.driver < LEAST_DRIVER:
        raise HostBrokenError(
            f"driver {facts.driver} of {facts.card} is older than {LEAST_DRIVER}", category="driver"
        )
    if facts.capability != plan.architecture:
        raise HostBrokenError(
            f"{facts.card} is sm_{facts.capability}, sm_{plan.architecture} was asked for",
            category="card",
        )
