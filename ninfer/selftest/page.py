"""The page of a self-test: the machine, and a line for each op and form, with its margin."""

import platform
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from ninfer.selftest.routes import Verdict
from ninfer.version import VERSION


def machine(device: torch.device) -> dict[str, str]:
    """What decides results: card, driver's CUDA, versions. No names of persons or machines."""
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else "none"
    return {
        "ninfer": VERSION,
        "card": card,
        "cuda": str(torch.version.cuda or "none"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": platform.machine(),
    }


def as_json(device: torch.device, found: Sequence[Verdict]) -> dict[str, Any]:
    """The same as one object."""
    return {"machine": machine(device), "ops": [asdict(verdict) for verdict in found]}


def page(device: torch.device, found: Sequence[Verdict]) -> str:
    """Markdown. A margin of 1 is at the bound; bounds are those of `ops/tolerance.py`."""
    wrong = [text for verdict in found for text in verdict.wrong]
    facts = [f"{name} {value}" for name, value in machine(device).items()]
    lines = ["# Self-test", "", ", ".join(facts), ""]
    lines += [f"{len(found)} routes, {len(wrong)} wrong. Margin 1 is at the bound.", ""]
    lines += [
        "| op | form | type | cases | margin | not served | |",
        "| - | - | - | - | - | - | - |",
    ]
    lines += [
        f"| {v.op} | {v.form} | {v.dtype} | {v.cases} | {v.margin:.3f} | {v.refused} | "
        f"{'WRONG' if v.wrong else 'ok'} |"
        for v in found
    ]
    return "\n".join([*lines, *([""] if wrong else []), *(f"- {text}" for text in wrong)]) + "\n"
