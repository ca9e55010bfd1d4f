"""A release: archives and kits with sums that hold, and the same bytes when it is made again."""

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ninfer.kits.archive import read_manifest
from ninfer.version import VERSION

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parent.parent.parent
# Parts of two kits: the six whole ones take hours on two cores.
PARTS = ("--arch", "80", "120", "--model", "tiny/groupwise-int", "--every", "60", "--jobs", "2")


def release(folder: Path, *options: str | Path, umask: int = 0o022) -> dict[str, bytes]:
    environment = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tools.release", folder, *options],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        umask=umask,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_same_release_twice(tmp_path: Path):
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"torch==2.13.0 --hash=sha256:{'0' * 64}\n")
    first = release(tmp_path / "first", *PARTS, "--lock", lock)
    second = release(tmp_path / "second", *PARTS, "--lock", lock, umask=0o077)
    offered = {name for name in first if not name.endswith(".BUILDINFO.txt")}
    assert {name: second[name] for name in offered} == {name: first[name] for name in offered}
    kits = sorted(name for name in offered if name.endswith(".kit.tar.gz"))
    assert len(offered) == 3 + len(kits) and len(kits) == 2
    sums = first["SHA256SUMS.txt"].decode().splitlines()
    want = sorted(offered - {"SHA256SUMS.txt"})
    assert sums == [f"{hashlib.sha256(first[name]).hexdigest()}  {name}" for name in want]
    for name, architecture in zip(sorted(kits), (120, 80), strict=True):
        manifest = read_manifest(tmp_path / "first" / name)
        assert manifest.architecture == architecture
        assert manifest.triton_kernels and manifest.cuda_kernels
        assert f"ninfer-{VERSION}-py3-none-any.whl" in {file.path for file in manifest.files}
    with tarfile.open(tmp_path / "first" / f"ninfer-{VERSION}.tar.gz") as source:
        assert f"ninfer-{VERSION}/pyproject.toml" in source.getnames()


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path):
    (tmp_path / "old.whl").write_bytes(b"")
    done = subprocess.run(
        [sys.executable, "-m", "tools.release", tmp_path], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2 and "is not empty" in done.stderr
