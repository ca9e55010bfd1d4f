"""What compiled kernels depend on beside the card: Python, machine, torch and the compiler."""

import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch

from ninfer.ops import aot

# Names as messages show them.
_SHOWN = {"python": "Python", "machine": "machine", "triton_key": "Triton's build"}


@dataclass(frozen=True, slots=True)
class Stack:
    """Facts that decide whether compiled kernels are found again."""

    python: str  # "cpython-312"
    machine: str  # "x86_64"
    torch: str  # "2.11.0", without the local part
    triton: str
    triton_key: str  # digest of Triton's sources and library

    @classmethod
    def here(cls) -> "Stack":
        """Those of this process. Reads Triton's library whole: about a second."""
        return cls(
            python=sys.implementation.cache_tag or "unknown",
            machine=platform.machine(),
            torch=torch.__version__.split("+")[0],
            **aot.compiler_facts(),
        )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Stack":
        """From a manifest's object, whose names and types are checked already."""
        return cls(**{item.name: values[item.name] for item in fields(cls)})

    def differences(self, other: "Stack") -> list[str]:
        """One line for each fact in which a kit (self) and another stack differ."""
        found = []
        for item in fields(self):
            own, theirs = getattr(self, item.name), getattr(other, item.name)
            if own != theirs:
                own, theirs = (x[:12] if item.name == "triton_key" else x for x in (own, theirs))
                name = _SHOWN.get(item.name, item.name)
                found.append(f"{name} is {theirs} here and {own} in the kit")
        return found
