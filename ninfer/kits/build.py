"""Build a kit: the wheel, its unpacked package, kernels of both tiers, scripts, lock, licence."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import torch

from ninfer.errors import KitError
from ninfer.kits.archive import pack
from ninfer.kits.compile import compile_models
from ninfer.kits.home import CUDA, TRITON
from ninfer.kits.launches import TOKENS, models
from ninfer.kits.limits import needs
from ninfer.kits.lock import lock_of
from ninfer.kits.manifest import KitFile, Manifest, safe_path
from ninfer.kits.options import BuildOptions
from ninfer.kits.programs import SCRIPTS
from ninfer.kits.stack import Stack
from ninfer.kits.triton_cache import strip_places
from ninfer.kits.urls import kit_name
from ninfer.ops.linear.compiler import compiler_version
from ninfer.ops.linear.kit import compile_kit
from ninfer.version import VERSION

LOCK: Final = "requirements.lock"
SUMS: Final = "SHA256SUMS"
_ROOT: Final = Path(__file__).resolve().parents[2]
# 2020-01-01: the time of every file of a wheel, so that the same source is the same wheel.
_EPOCH: Final = "1577836800"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Built:
    """A finished kit and the record of how it was made, which is not part of its bytes."""

    archive: Path
    record: Path
    sha256: str
    manifest: Manifest


def build(options: BuildOptions, revision: str, say: Say) -> Built:
    """Write `<id>.kit.tar.gz` and `<id>.BUILDINFO.txt` into the output folder.

    The same source, stack and options give the same archive, byte for byte. Raises KitError for a
    kernel that does not compile or fit, a wheel that cannot be made, a lock that cannot be found.
    """
    start = time.monotonic()
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ninfer-kit-") as made:
        folder = Path(made)
        wheel = options.wheel or _make_wheel(folder / "made")
        say(f"wheel {wheel.name}")
        _put_wheel(wheel, folder)
        shutil.rmtree(folder / "made", ignore_errors=True)
        _write(folder / LOCK, lock_of(wheel) if options.lock is None else options.lock.read_text())
        for name, text in SCRIPTS.items():
            _write(folder / name, text)
        chosen = options.model or models()
        jobs = options.jobs or os.cpu_count() or 1
        seconds = _compile(folder, options, chosen, jobs, say)
        manifest = _manifest(folder, options, revision, chosen)
        archive = options.output / f"{manifest.id}.kit.tar.gz"
        pack(folder, manifest, archive)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    facts = {"jobs": jobs, "build_seconds": round(time.monotonic() - start), **seconds}
    record = options.output / f"{manifest.id}.BUILDINFO.txt"
    _write(record, build_info(manifest, digest, facts))
    return Built(archive, record, digest, manifest)


def build_info(manifest: Manifest, digest: str, facts: Mapping[str, object]) -> str:
    """Lines of key and value: what the kit is, and where and how long it was built."""
    values = {
        "project": "ninfer",
        "id": manifest.id,
        "version": manifest.ninfer,
        "revision": manifest.revision,
        "architecture": f"sm_{manifest.architecture}",
        "sha256": digest,
        "bytes_unpacked": manifest.bytes,
        "triton_kernels": len(manifest.triton_kernels),
        "cuda_kernels": len(manifest.cuda_kernels),
        **asdict(manifest.stack),
        "nvrtc": manifest.nvrtc,
        "host": f"{platform.system()} {platform.release()} {platform.machine()}",
        "driver": _driver(),
        "gpu": _gpu(),
        **facts,
        "built_utc": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        "kernels": " ".join(sorted({*_names(manifest.triton_kernels), *manifest.cuda_kernels})),
    }
    return "".join(f"{name} {value}\n" for name, value in values.items())


def _names(kernels: tuple[str, ...]) -> set[str]:
    return {Path(path).stem for path in kernels}


def _gpu() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none"


def _driver() -> str:
    path = Path("/proc/driver/nvidia/version")
    return " ".join(path.read_text().split("\n")[0].split()) if path.exists() else "none"


def _compile(
    folder: Path, options: BuildOptions, chosen: tuple[str, ...], jobs: int, say: Say
) -> dict[str, object]:
    """Seconds of both compilers, and the most that a kernel needs."""
    start = time.monotonic()
    cache = folder / TRITON
    cache.mkdir(parents=True)
    found = compile_models(
        str(cache),
        [options.architecture],
        chosen,
        TOKENS,
        jobs,
        every=options.every,
        binaries_only=True,
    )
    bad = [record for record in found if record.error]
    if bad:
        raise KitError(
            f"sm_{options.architecture}: {len(bad)} of {len(found)} launches do not compile; "
            f"first {bad[0].kernel}: {bad[0].error}"
        )
    strip_places(cache)
    triton_seconds = time.monotonic() - start
    say(f"{len(found)} launches compiled by Triton in {triton_seconds:.0f} s")
    start = time.monotonic()
    (folder / CUDA).mkdir()
    count = compile_kit(options.architecture, folder / CUDA, options.every)
    cuda_seconds = time.monotonic() - start
    say(f"{count} CUDA kernels compiled in {cuda_seconds:.0f} s")
    return {
        "launches": len(found),
        "triton_seconds": round(triton_seconds),
        "cuda_seconds": round(cuda_seconds),
        **needs(folder / CUDA.partition("/")[0], options.architecture).facts(),
    }


def _manifest(
    folder: Path, options: BuildOptions, revision: str, chosen: tuple[str, ...]
) -> Manifest:
    stack = Stack.here()
    sums = "".join(f"{file.sha256}  {file.path}\n" for file in _files(folder))
    _write(folder / SUMS, sums)
    files = tuple(_files(folder))
    part = "" if options.every == 1 and not options.model else "-part"
    return Manifest(
        id=kit_name(options.architecture, stack.python, stack.machine) + part,
        ninfer=VERSION,
        revision=revision,
        architecture=options.architecture,
        stack=stack,
        nvrtc=compiler_version(),
        models=tuple(chosen),
        triton_kernels=_below(files, TRITON, ".cubin"),
        cuda_kernels=_below(files, CUDA, ".cubin"),
        files=files,
    )


def _below(files: tuple[KitFile, ...], folder: str, suffix: str) -> tuple[str, ...]:
    start = f"{folder}/"
    return tuple(
        file.path.removeprefix(start)
        for file in files
        if file.path.startswith(start) and file.path.endswith(suffix)
    )


def _files(folder: Path) -> Iterator[KitFile]:
    """Every file in the order of its path."""
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    for path in paths:
        full = folder / path
        if full.is_file() and not path.endswith(".lock.tmp"):
            content = full.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            yield KitFile(path, len(content), digest, executable=path in SCRIPTS)


def _make_wheel(folder: Path) -> Path:
    if not (_ROOT / "pyproject.toml").is_file():
        raise KitError("ninfer does not run from a checkout, so --wheel FILE has to name its wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", _EPOCH)}
    with tempfile.TemporaryDirectory(prefix="ninfer-source-") as copy:
        # setuptools leaves its build folder, with whatever lay in it, beside the source.
        source = Path(copy) / "ninfer"
        shutil.copytree(_ROOT, source, ignore=_left_out)
        done = subprocess.run(
            [*command, str(source)], env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise KitError(f"the wheel cannot be made: {last}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def _left_out(folder: str, names: list[str]) -> set[str]:
    """At the top only what setuptools reads; caches nowhere."""
    top = Path(folder) == _ROOT
    kept = ("ninfer", "pyproject.toml", "README.md", "LICENSE")
    return {name for name in names if name == "__pycache__" or (top and name not in kept)}


def _put_wheel(wheel: Path, folder: Path) -> None:
    """The wheel itself, its package unpacked as lib/, and its licence."""
    shutil.copyfile(wheel, folder / wheel.name)
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        if f"ninfer-{VERSION}.dist-info/METADATA" not in names:
            raise KitError(f"{wheel}: not a wheel of ninfer {VERSION}")
        if bad := [name for name in names if not safe_path(name.rstrip("/"))]:
            raise KitError(f"{wheel}: {bad[0]!r} is no path of a package")
        packed.extractall(folder / "lib")
        licences = [name for name in names if name.endswith("/LICENSE")]
        if not licences:
            raise KitError(f"{wheel}: holds no LICENSE")
        (folder / "LICENSE").write_bytes(packed.read(licences[0]))
    _write(folder / "ATTRIBUTION.txt", ATTRIBUTION)


ATTRIBUTION: Final = """The kernels in this kit were compiled from ninfer's own sources, which the
LICENSE beside this file covers, by Triton (MIT licence) and by NVIDIA's NVRTC and ptxas. They hold
functions of NVIDIA's libdevice, which its licence allows to be distributed in compiled form. No
model, no Python and no other package is in this kit; requirements.lock names what it needs.
"""


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def summary(built: Built) -> str:
    """One JSON line about a finished kit."""
    size = built.archive.stat().st_size
    return json.dumps({"kit": str(built.archive), "bytes": size, "sha256": built.sha256})
