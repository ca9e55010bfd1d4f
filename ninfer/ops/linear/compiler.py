"""CUDA sources to machine code by NVRTC, kept in a folder that may come from another machine.

A binary is named by what it is made of: sources, constants and architecture. The version of the
compiler is not part of the name, so that a kit built elsewhere serves without any compiler.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import MappingProxyType
from typing import Any, Final

from ninfer.errors import UnsupportedError

try:
    from cuda.bindings import nvrtc
except ImportError as error:
    raise UnsupportedError(
        f"CUDA kernels need the package cuda-bindings ({error}); pip install 'ninfer[cuda]'"
    ) from error

SOURCES: Final = ("stream.cu", "wide.cu", "warpgroup.cu", "arrange.cu", "read.cu")
_HEADERS: Final = ("machine.cuh", "codec.cuh", "product.cuh", "output.cuh", "runs.cuh")
# Headers of other families of ops, whose sources are named "family/file" and see those above too.
_FAMILY_HEADERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "attention": tuple(
            f"attention/{name}.cuh" for name in ("splits", "cache", "items", "warp")
        ),
        "moe": ("moe/items.cuh",),
        "sampling": ("sampling/row.cuh",),
        "delta_net": ("delta_net/words.cuh",),
    }
)
# Changes when the meaning of a name does.
_NAMING: Final = "2"
# Hopper's own instructions: every card of compute capability 9.0 has them.
_TARGETS: Final[Mapping[int, str]] = MappingProxyType({90: "90a"})


@dataclass(frozen=True, slots=True)
class Program:
    """One source with its compile-time constants, for one architecture (90 is sm_90)."""

    source: str
    architecture: int
    defines: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, source: str, architecture: int, defines: Mapping[str, int]) -> "Program":
        """The program with these constants, in any order."""
        return cls(source, architecture, tuple(sorted(defines.items())))

    @property
    def headers(self) -> tuple[str, ...]:
        """The headers that the source may include, by the last part of their names."""
        family = self.source.rpartition("/")[0]
        return _HEADERS + _FAMILY_HEADERS.get(family, ())

    @property
    def name(self) -> str:
        """File name of the binary: readable, and unique by content."""
        head = f"{_NAMING} {self.source} {self.architecture} {self.defines}\n"
        digest = hashlib.sha256(head.encode())
        for text in (source_text(self.source), *map(source_text, self.headers)):
            digest.update(text)
        stem = self.source.removesuffix(".cu").replace("/", "-")
        return f"{stem}-sm_{self.architecture}-{digest.hexdigest()[:24]}.cubin"


@cache
def source_text(name: str) -> bytes:
    """A file of a family's `cuda` folder, by "family/file" or, for the linear ops, by "file"."""
    family, _, file = name.rpartition("/")
    return files(f"ninfer.ops.{family or 'linear'}").joinpath("cuda", file).read_bytes()


def default_folder() -> Path:
    """Where binaries are kept: NINFER_KERNELS, or ninfer/kernels in the user's cache folder."""
    told = os.environ.get("NINFER_KERNELS")
    if told:
        return Path(told)
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "ninfer" / "kernels"


def binary(program: Program, folder: Path | None = None) -> bytes:
    """Machine code of a program from the folder, else compiled and then kept there.

    A folder that cannot be written to is no error. Raises UnsupportedError without a compiler.
    """
    path = (folder or default_folder()) / program.name
    try:
        return path.read_bytes()
    except OSError:
        pass
    code = compile_program(program)
    _keep(path, code)
    return code


def compile_program(program: Program) -> bytes:
    """Compile without looking anywhere; needs no card.

    Raises UnsupportedError when NVRTC is absent or does not know the architecture.
    """
    handle = _checked(_create(program))
    try:
        options = [
            f"--gpu-architecture=sm_{_TARGETS.get(program.architecture, program.architecture)}",
            "--std=c++17",
            *(f"-D{name}={value}" for name, value in program.defines),
        ]
        words = [option.encode() for option in options]
        status = nvrtc.nvrtcCompileProgram(handle, len(words), words)[0]
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise UnsupportedError(
                f"{program.source} for sm_{program.architecture}: {status.name}: {_log(handle)}"
            )
        code = bytes(_checked(nvrtc.nvrtcGetCUBINSize(handle)))
        _checked(nvrtc.nvrtcGetCUBIN(handle, code))
        return code
    finally:
        nvrtc.nvrtcDestroyProgram(handle)


def compiler_version() -> str:
    """Version of NVRTC, or "absent"."""
    try:
        _, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError:
        return "absent"
    return f"{major}.{minor}"


def _create(program: Program) -> Any:
    names = [name.rpartition("/")[2].encode() for name in program.headers]
    texts = [source_text(name) for name in program.headers]
    source = source_text(program.source)
    try:
        return nvrtc.nvrtcCreateProgram(source, program.source.encode(), len(names), texts, names)
    # What cuda-bindings raises when the library itself cannot be found.
    except RuntimeError as error:
        raise UnsupportedError(
            f"NVRTC cannot be loaded ({' '.join(str(error).split())}); pip install 'ninfer[cuda]', "
            "or set NINFER_KERNELS to a folder of compiled kernels"
        ) from error


def _checked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise UnsupportedError(f"NVRTC: {status.name}")
    return values[0] if values else None


def _log(handle: Any) -> str:
    """What the compiler said, on one line."""
    log = bytes(_checked(nvrtc.nvrtcGetProgramLogSize(handle)))
    _checked(nvrtc.nvrtcGetProgramLog(handle, log))
    return " ".join(log.rstrip(b"\0").decode(errors="replace").split())


def _keep(path: Path, code: bytes) -> None:
    """Write through a second name, so that no reader ever sees half a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(code)
        os.replace(file.name, path)
    except OSError:
        return
