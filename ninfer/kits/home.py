"""Where kits are installed, and which one is current for an architecture; no torch."""

import os
from pathlib import Path
from typing import Final

KIT: Final = "NINFER_KIT"
TRITON: Final = "kernels/triton"
CUDA: Final = "kernels/cuda"


def home() -> Path:
    """NINFER_KITS, or ninfer/kits in the user's data folder."""
    told = os.environ.get("NINFER_KITS")
    if told:
        return Path(told)
    root = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(root) / "ninfer" / "kits"


def current_link(folder: Path, architecture: int) -> Path:
    """The link that names the current kit of an architecture."""
    return folder / f"current-sm{architecture}"


def any_kit() -> bool:
    """Whether there is a kit that could be used."""
    return KIT in os.environ or any(home().glob("current-sm*"))


def kit_of(architecture: int) -> Path | None:
    """The kit to use: that of NINFER_KIT, or the current one of the architecture."""
    told = os.environ.get(KIT)
    if told:
        return Path(told)
    link = current_link(home(), architecture)
    return link.resolve() if link.exists() else None
