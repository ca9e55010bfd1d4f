"""Writes what a release offers: source archive, wheel, a kit for each architecture, their sums.

    python -m tools.release dist

The same revision on the same stack gives the same bytes. What differs from run to run (how long it
took, where) is beside each kit, in `*.BUILDINFO.txt`, and not in the sums.
"""

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from ninfer.bench.machine import revision
from ninfer.kits.build import build
from ninfer.kits.launches import models
from ninfer.kits.lock import lock_of
from ninfer.kits.options import ARCHITECTURES, BuildOptions

ROOT: Final = Path(__file__).resolve().parent.parent
SUMS: Final = "SHA256SUMS.txt"
# 2020-01-01: the time of every file in both archives.
EPOCH: Final = 1577836800
_PIECE: Final = 1 << 20


def main(argv: Sequence[str]) -> int:
    """Build as asked; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("folder", type=Path, help="empty or new")
    parser.add_argument("--arch", type=int, nargs="*", default=ARCHITECTURES, choices=ARCHITECTURES)
    parser.add_argument("--model", nargs="+", default=(), choices=models())
    parser.add_argument("--jobs", type=int, default=0, help="0: one for each core")
    parser.add_argument("--every", type=int, default=1, help="N: parts of kits; see `ninfer kit`")
    parser.add_argument("--lock", type=Path, help="requirements with hashes; else pip is asked")
    options = parser.parse_args(argv)
    folder: Path = options.folder
    if folder.exists() and any(folder.iterdir()):
        parser.error(f"{folder} is not empty; a release is made from nothing")
    wheel = archives(folder)
    with tempfile.TemporaryDirectory(prefix="ninfer-lock-") as made:
        lock = options.lock or Path(made) / "requirements.lock"
        if options.arch and options.lock is None:
            lock.write_text(lock_of(wheel), encoding="utf-8")
        for architecture in options.arch:
            chosen = BuildOptions(
                architecture=architecture,
                output=folder,
                model=tuple(options.model),
                wheel=wheel,
                lock=lock,
                jobs=options.jobs,
                every=options.every,
            )
            built = build(chosen, revision(ROOT), _say)
            _say(f"{built.archive.name}: {built.archive.stat().st_size:,} bytes")
    offered = (path for path in folder.iterdir() if path.suffix in (".gz", ".whl"))
    (folder / SUMS).write_text(sums(offered), encoding="utf-8")
    return 0


def archives(folder: Path) -> Path:
    """Write source archive and wheel, made from it, into a folder; gives the wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ninfer-source-") as made:
        source, output = Path(made) / "source", Path(made) / "output"
        copy_tracked(ROOT, source)
        # Umask and times of this machine have no part in it: the wheel keeps its files' modes.
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
        command = [sys.executable, "-m", "build", "--outdir", str(output), str(source)]
        subprocess.run(command, check=True, env=environment, umask=0o022, stdout=subprocess.DEVNULL)
        (archive,), (wheel,) = output.glob("*.tar.gz"), output.glob("*.whl")
        (folder / archive.name).write_bytes(without_traces(archive.read_bytes()))
        shutil.copyfile(wheel, folder / wheel.name)
        return folder / wheel.name


def copy_tracked(root: Path, target: Path) -> None:
    """Copy what git knows, as it lies there, with modes that do not depend on the umask."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, target / name)
        (target / name).chmod(0o755 if os.access(root / name, os.X_OK) else 0o644)


def without_traces(archive: bytes) -> bytes:
    """A source archive in order of its names, with one time and no owners."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as old,
        gzip.GzipFile("", "wb", compresslevel=9, fileobj=packed, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda found: found.name):
            entry = tarfile.TarInfo(member.name)
            entry.size, entry.type, entry.mtime = member.size, member.type, EPOCH
            entry.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(entry, old.extractfile(member) if member.isreg() else None)
    return packed.getvalue()


def sums(files: Iterable[Path]) -> str:
    """Lines for `sha256sum --check`, by name."""
    lines = []
    for path in sorted(files):
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
        lines.append(f"{digest.hexdigest()}  {path.name}\n")
    return "".join(lines)


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
