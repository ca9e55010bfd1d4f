"""Starting the sandboxed process: an own session and folder, a clean environment, a time to end."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

_CHILD: Final = Path(__file__).with_name("child.py")
_SHOWN: Final = 4000


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds of the clock and of the processor, bytes of memory, and bytes of a written file."""

    seconds: float = 20.0
    cpu_seconds: int = 10
    memory: int = 1 << 30
    file_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class Ran:
    """How a process ended. `status` is None when its time was over, negative after a signal."""

    status: int | None
    output: str

    @property
    def ok(self) -> bool:
        """Whether it ended by itself and well."""
        return self.status == 0

    @property
    def reason(self) -> str:
        """The last line that says something, or how it ended."""
        if self.status is None:
            return "its time was over"
        if self.status < 0:
            return f"ended by {signal.Signals(-self.status).name}; a limit was reached"
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        errors = [line for line in lines if "Error" in line]
        return (errors or lines or [f"status {self.status}"])[-1][:200]


def run_unittest(files: Mapping[str, str], names: Sequence[str], limits: Limits) -> Ran:
    """Write files into a new folder, compile the Python ones, run the tests of modules `names`.

    Without `names` it only compiles.
    """
    modules = [name for name in files if name.endswith(".py")]
    with tempfile.TemporaryDirectory(prefix="ninfer-code-") as folder:
        written = _write(Path(folder), files)
        if written is not None:
            return written
        compiled = _start(Path(folder), "compile", modules, limits)
        if not compiled.ok or not names:
            return compiled
        return _start(Path(folder), "unittest", names, limits)


def run_tool(files: Mapping[str, str], command: Sequence[str], limits: Limits) -> Ran:
    """Write files into a new folder and run another program there, a compiler for one."""
    with tempfile.TemporaryDirectory(prefix="ninfer-code-") as folder:
        return _write(Path(folder), files) or _start(Path(folder), "tool", command, limits)


def _write(folder: Path, files: Mapping[str, str]) -> Ran | None:
    for name, text in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            return Ran(1, f"{name}: a path out of the folder")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", errors="surrogatepass")
    return None


def _start(folder: Path, action: str, names: Sequence[str], limits: Limits) -> Ran:
    bounds = f"{limits.cpu_seconds},{limits.memory},{limits.file_bytes}"
    command = [*_without_network(), sys.executable, "-I", "-B", str(_CHILD), bounds, action, *names]
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "LANG": "C.UTF-8",
    }
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(limits.seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            # Children that it left are in its session.
            _end(process)
        output.seek(0)
        return Ran(status, output.read(limits.file_bytes).decode("utf-8", "replace")[-_SHOWN:])


def _end(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@cache
def _without_network() -> tuple[str, ...]:
    """The program that takes the network away, where the system lets us."""
    program = shutil.which("unshare")
    if program is None:
        return ()
    command = (program, "--user", "--map-current-user", "--net", "--")
    try:
        done = subprocess.run([*command, "true"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return command if done.returncode == 0 else ()
