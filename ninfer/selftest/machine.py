"""Disk, ports, caches of compiled kernels, and the installed kit."""

import errno
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ninfer.errors import KitError
from ninfer.kits.home import CUDA, KIT, TRITON, kit_of
from ninfer.kits.install import check_match, damaged, installed
from ninfer.kits.stack import Stack
from ninfer.kits.triton_cache import kernel_count
from ninfer.kits.use import card
from ninfer.ops.aot import cache_folder
from ninfer.selftest.symptom import Symptom, bad, note, ok

_TRIED: Final = 64 << 20
# The largest published artifact and the room that fetching it wants.
_ARTIFACT: Final = 24 << 30
_SLOW: Final = 200e6


def disk(folder: Path) -> Iterator[Symptom]:
    """Room for an artifact, and how fast 64 MiB are written and on the disk."""
    free = shutil.disk_usage(folder).free
    text = f"{free / 2**30:,.1f} GiB free in {folder.resolve()}"
    if free < _TRIED:
        yield bad("disk", text, "make room")
        return
    if free < _ARTIFACT:
        yield note("disk", text, "a published artifact takes up to 23 GiB; choose another folder")
    else:
        yield ok("disk", text)
    try:
        rate = _write_rate(folder)
    except OSError as error:
        why = error.strerror or str(error)
        yield bad("disk speed", f"{folder.resolve()} cannot be written: {why}", "check its rights")
        return
    shown = f"{rate / 1e6:,.0f} MB/s written and synchronised ({_TRIED >> 20} MiB)"
    if rate < _SLOW:
        yield note("disk speed", shown, "loading takes long; keep artifacts on a local SSD")
    else:
        yield ok("disk speed", shown)


def _write_rate(folder: Path) -> float:
    block = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir=folder) as file:
        start = time.perf_counter()
        for _ in range(_TRIED >> 20):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return _TRIED / (time.perf_counter() - start)


def port(host: str, number: int) -> Iterator[Symptom]:
    """Whether a server could listen there."""
    name = f"port {host}:{number}"
    try:
        family = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((host, number))
    except socket.gaierror as error:
        yield bad(name, f"no such address: {error.strerror}", "use 127.0.0.1, or 0.0.0.0 for all")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            taken = "another program listens there"
            yield bad(name, taken, "end it, or give 'ninfer serve --port' another number")
        else:
            text = error.strerror or str(error)
            yield bad(name, text, "use an address of this machine and a port from 1024 on")
    else:
        yield ok(name, "free")


def caches() -> Iterator[Symptom]:
    """Folders that compiled kernels are kept in."""
    folder = cache_folder()
    kept = kernel_count(folder) if folder.is_dir() else 0
    yield _writable("Triton cache", folder, f"{kept} kernels in {folder}")
    told = os.environ.get("NINFER_KERNELS")
    if told and not any(Path(told).glob("*.cubin")):
        empty = f"NINFER_KERNELS is {told}, which holds no kernels"
        yield bad("CUDA kernels", empty, "unset NINFER_KERNELS, or name the folder of a kit")


def _writable(name: str, folder: Path, text: str) -> Symptom:
    near = folder
    while not near.exists() and near != near.parent:
        near = near.parent
    try:
        with tempfile.TemporaryFile(dir=near):
            return ok(name, text)
    except OSError as error:
        why = error.strerror or str(error)
        fix = "set TRITON_CACHE_DIR to a folder that can be written"
        return bad(name, f"{folder}: {why}", fix)


def kit() -> Iterator[Symptom]:
    """The kit for this card: there, whole, and for this stack."""
    architecture = card()
    told = os.environ.get(KIT)
    if architecture is None and not told:
        return
    folder = kit_of(architecture or 0)
    if folder is None:
        compiled = f"none for sm_{architecture}; kernels are compiled at the first start"
        yield note("kit", compiled, "ninfer kit install")
        return
    try:
        found = installed(folder)
        check_match(found.manifest, Stack.here(), architecture, folder)
    except KitError as error:
        yield bad("kit", str(error), "install the kit of this version and stack")
        return
    if broken := damaged(found):
        text = f"{folder}: {len(broken)} files are not as installed, {broken[0]} for one"
        yield bad("kit", text, "install it again")
        return
    counts = [len(list((folder / part).rglob("*.cubin"))) for part in (TRITON, CUDA)]
    yield ok("kit", f"{found.manifest.id}: {counts[0]} and {counts[1]} kernels")
