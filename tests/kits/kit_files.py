"""A small kit made by hand: two scripts, a package of one file, one kernel of each tier."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ninfer.kits.archive import pack
from ninfer.kits.home import CUDA, TRITON
from ninfer.kits.manifest import NAME, KitFile, Manifest
from ninfer.kits.programs import SCRIPTS
from ninfer.kits.stack import Stack
from ninfer.version import VERSION

STACK = Stack("cpython-311", "x86_64", "2.13.0", "3.9.0", "ab" * 32)
KERNEL = f"{TRITON}/KEY/attend.cubin"
GROUP = f"{TRITON}/KEY/__grp__attend.json"
CONTENT = {
    "lib/ninfer/__init__.py": b"",
    "lib/ninfer/__main__.py": b"import os, sys\nprint(os.environ['NINFER_KIT'], *sys.argv[1:])\n",
    KERNEL: b"\x7fELF attend",
    GROUP: json.dumps({"child_paths": {"attend.cubin": "attend.cubin"}}).encode(),
    f"{CUDA}/stream-sm_90-0.cubin": b"\x7fELF stream",
    "LICENSE": b"Apache\n",
    **{name: text.encode() for name, text in SCRIPTS.items()},
}


def entry(path: str, content: bytes) -> KitFile:
    """The manifest's line about a file."""
    digest = hashlib.sha256(content).hexdigest()
    return KitFile(path, len(content), digest, executable=path in SCRIPTS)


def manifest_of(content: dict[str, bytes]) -> Manifest:
    """For sm_90 and STACK."""
    return Manifest(
        id=f"ninfer-{VERSION}-cp311-x86_64-sm90",
        ninfer=VERSION,
        revision="0123456789ab",
        architecture=90,
        stack=STACK,
        nvrtc="13.0",
        models=("qwen3.6-27b/groupwise-int",),
        triton_kernels=("KEY/attend.cubin",),
        cuda_kernels=("stream-sm_90-0.cubin",),
        files=tuple(entry(path, content[path]) for path in sorted(content)),
    )


def write_kit(path: Path, content: dict[str, bytes] | None = None, **changes: object) -> Path:
    """A kit of these files; `changes` are to its manifest."""
    files = CONTENT if content is None else content
    folder = path.with_name(f"{path.name}.files")
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    pack(folder, replace(manifest_of(files), **changes), path)
    return path


def rewrite(
    source: Path, target: Path, change: Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]
) -> Path:
    """A copy of an archive whose entries `change` has edited in place."""
    with tarfile.open(source) as tar:
        entries = [(member, tar.extractfile(member).read()) for member in tar]  # files only
    change(entries)
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for member, data in entries:
            member.size = len(data) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(data))
    target.write_bytes(gzip.compress(raw.getvalue(), mtime=0))
    return target


def edit_manifest(
    entries: list[tuple[tarfile.TarInfo, bytes]], change: Callable[[dict[str, object]], None]
) -> None:
    """Change the manifest inside an archive's entries."""
    assert entries[0][0].name == NAME
    values = json.loads(entries[0][1])
    change(values)
    entries[0] = (entries[0][0], json.dumps(values).encode())
