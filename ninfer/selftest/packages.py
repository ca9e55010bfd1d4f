"""Python, its packages, and whether those that need each other fit together."""

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import torch

from ninfer.selftest.symptom import Symptom, bad, note, ok

# What the wheels of torch and Triton are built for.
_GLIBC: Final = (2, 28)
_PYTHONS: Final = ((3, 11), (3, 14))
# Those without which videos of these kinds are refused.
_DECODERS: Final = ("h264", "hevc", "vp9", "av1", "mpeg4")
_NEEDED: Final = ("tokenizers", "jinja2", "PIL", "av", "llguidance", "safetensors", "fastapi")
_LIMIT_S: Final = 60
_PINNED: Final = re.compile(r"triton\s*==\s*([^\s;]+)")


def python() -> Iterator[Symptom]:
    """Version, and the C library that wheels are built for."""
    text = f"{platform.python_version()} in {sys.prefix}"
    low, high = _PYTHONS
    if low <= sys.version_info[:2] < high:
        yield ok("python", text)
    else:
        yield bad("python", text, "use Python 3.11, 3.12 or 3.13")
    name, version = platform.libc_ver()
    if name != "glibc":
        yield note("libc", f"{name or 'unknown'} {version}", "wheels of torch need glibc")
        return
    numbers = tuple(int(part) for part in version.split(".")[:2])
    if numbers >= _GLIBC:
        yield ok("libc", f"glibc {version}")
    else:
        wanted = ".".join(map(str, _GLIBC))
        yield bad("libc", f"glibc {version}", f"use a system with glibc {wanted} or newer")


def packages() -> Iterator[Symptom]:
    """Everything that ninfer needs at run time can be imported, each in a process of its own."""
    broken = {name: why for name in _NEEDED if (why := _asked(f"import {name}")[1])}
    if broken:
        text = "; ".join(f"{name} ({why})" for name, why in broken.items())
        yield bad("packages", text, f"pip install --force-reinstall {' '.join(broken)}")
    else:
        yield ok("packages", f"{len(_NEEDED)} can be imported")


def _asked(code: str) -> tuple[str, str]:
    """What a Python process prints for some code, and why it failed; a crash is a reason too."""
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return "", f"no answer within {_LIMIT_S} s"
    lines = done.stderr.strip().splitlines()
    if done.returncode < 0:
        return "", f"crashes with signal {-done.returncode}"
    return done.stdout.strip(), (lines[-1] if lines else "fails") if done.returncode else ""


def compilers() -> Iterator[Symptom]:
    """torch and Triton as a pair, and the C compiler that Triton builds its launchers with."""
    interpreted = os.environ.get("TRITON_INTERPRET")
    if interpreted not in (None, "", "0"):
        yield bad(
            "TRITON_INTERPRET",
            f"is {interpreted}: kernels run in Python, thousands of times slower",
            "unset TRITON_INTERPRET",
        )
    try:
        found = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        cuda = torch.version.cuda is not None
        absent = "not installed; PyTorch ops run instead"
        yield note("triton", absent, "pip install triton" if cuda else "")
        return
    wanted = pinned_triton()
    text = f"{found} with torch {torch.__version__}"
    if wanted and found != wanted:
        yield bad("triton", f"{text}, which needs {wanted}", f"pip install triton=={wanted}")
    else:
        yield ok("triton", text)
    yield _c_compiler()


def pinned_triton() -> str:
    """The Triton version that the installed torch asks for; "" when it asks for none."""
    for line in importlib.metadata.requires("torch") or ():
        if match := _PINNED.match(line):
            return match.group(1)
    return ""


def _c_compiler() -> Symptom:
    chosen = os.environ.get("CC")
    names = [chosen] if chosen else ["gcc", "clang", "cc"]
    found = next((path for name in names if (path := shutil.which(name))), None)
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if found is None:
        where = f"CC is {chosen!r}, which is not there" if chosen else "none on PATH"
        return bad("C compiler", f"{where}; Triton needs one once", "install gcc, or set CC")
    if not header.is_file():
        return bad(
            "C compiler",
            f"{found}, but {header} is missing; Triton needs both once",
            "install the headers of this Python (python3-dev)",
        )
    return ok("C compiler", f"{found}, {header}")


def decoders() -> Iterator[Symptom]:
    """Kinds of video that PyAV can read."""
    told, why = _asked("import av; print(av.__version__, *av.codecs_available)")
    if why:
        yield bad("video", why, "pip install --force-reinstall av")
        return
    version, *known = told.split()
    if missing := [name for name in _DECODERS if name not in known]:
        reinstall = "install PyAV's own wheel: pip install --force-reinstall --only-binary av av"
        yield note("video", f"PyAV {version} cannot read {', '.join(missing)}", reinstall)
    else:
        yield ok("video", f"PyAV {version} reads {', '.join(_DECODERS)}")
