"""A file for bug reports: the report, versions and settings, without names, keys and places."""

import getpass
import importlib.metadata
import json
import os
import platform
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from ninfer.selftest.symptom import Symptom
from ninfer.version import VERSION

# Variables whose values say how things run; of all others only the names are kept.
_SHOWN: Final = re.compile(
    r"(CUDA|TRITON|OMP|MKL|PYTORCH|NVIDIA_VISIBLE|NVIDIA_DRIVER|NINFER)_?\w*|CC|LANG|LC_ALL"
)
_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL", re.IGNORECASE)
_PATTERNS: Final = (
    (re.compile(r"\bGPU-[0-9a-f]{8}[0-9a-f-]*", re.IGNORECASE), "GPU-..."),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b"), "0.0.0.0"),
    (re.compile(r"\b(hf|sk)[_-][A-Za-z0-9_-]{8,}"), r"\1-..."),
    (re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.]+\b"), "someone@..."),
)


def write_bundle(path: Path, report: Sequence[Symptom]) -> None:
    """Write the archive; an existing file is replaced."""
    texts = {
        "report.json": json.dumps([asdict(item) for item in report], indent=1),
        "versions.json": json.dumps(versions(), indent=1),
        "environment.json": json.dumps(settings(os.environ), indent=1),
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(name, redacted(text))


def versions() -> dict[str, str]:
    """Of ninfer, Python, the system and every installed package."""
    found = {item.name: item.version for item in importlib.metadata.distributions() if item.name}
    return {
        "ninfer": VERSION,
        "python": platform.python_version(),
        "system": platform.platform(),
        **dict(sorted(found.items())),
    }


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that say how things run; the others by name, their values left out."""
    return {
        name: value if _SHOWN.fullmatch(name) and not _SECRET.search(name) else "..."
        for name, value in sorted(environment.items())
    }


def redacted(text: str) -> str:
    """The text without the user's name, home, host, addresses, keys and serial numbers."""
    home = str(Path.home())
    if len(home) > 1:
        text = text.replace(home, "~")
    for name in (platform.node(), _user()):
        if len(name) > 2:
            text = re.sub(rf"\b{re.escape(name)}\b", "...", text)
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    # An account without a name, as containers have them.
    except (KeyError, OSError):
        return ""
