"""Options of `ninfer kit`; no torch."""

from dataclasses import dataclass
from pathlib import Path

from ninfer.engine.options import KV_DTYPES
from ninfer.errors import UsageError
from ninfer.options import option

ARCHITECTURES = (80, 86, 89, 90, 100, 120)


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What to put into a kit."""

    architecture: int = option(0, "compute capability times ten", metavar="80|86|89|90|100|120")
    output: Path = option(Path("dist"), "folder for the kit and its build record")
    model: tuple[str, ...] = option(
        (), "model whose kernels to compile; repeatable", metavar="MODEL/WEIGHTS", unset="all"
    )
    wheel: Path | None = option(
        None, "wheel of this version", metavar="FILE", unset="made from the checkout"
    )
    lock: Path | None = option(
        None,
        "requirements with hashes to put in",
        metavar="FILE",
        unset="asked of pip's index",
    )
    jobs: int = option(0, "processes that compile (0: one for each core)", metavar="N")
    every: int = option(1, "compile only each N-th launch; for trying, marked so", metavar="N")


def check_build(options: BuildOptions) -> None:
    """Raise UsageError for a value out of range."""
    known = ", ".join(map(str, ARCHITECTURES))
    if options.architecture not in ARCHITECTURES:
        raise UsageError(f"--architecture {options.architecture}: must be one of {known}")
    if options.jobs < 0 or options.every < 1:
        raise UsageError(f"--jobs {options.jobs} --every {options.every}: at least 0 and 1")
    for flag, path in (("--wheel", options.wheel), ("--lock", options.lock)):
        if path is not None and not path.is_file():
            raise UsageError(f"{flag} {path}: no such file")


@dataclass(frozen=True, slots=True)
class InstallOptions:
    """How to install a kit."""

    sha256: str = option("", "digest that the archive must have", metavar="HEX", unset="any")
    folder: Path | None = option(None, "where kits live", unset="NINFER_KITS or the data folder")
    force: bool = option(False, "install one that does not match this machine's stack")


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What an engine is started with, and asked, to see what compiles."""

    device: str = option("auto", "as for `ninfer run`", metavar="N|cpu|auto")
    backend: str = option("auto", "as for `ninfer run`", choices=("auto", "reference", "triton"))
    kv_dtype: str = option("bf16", "as for `ninfer run`", choices=KV_DTYPES)
    spec: str | None = option(None, "as for `ninfer run`", metavar="DRAFTER", unset="none")
    prompt: str = option("Why is the sky blue?", "what to ask", metavar="TEXT")
    max_new: int = option(64, "tokens to generate greedily", metavar="N")
    json: Path | None = option(None, "also write the result to a file", metavar="FILE")
