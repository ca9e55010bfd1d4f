"""From the start of a process to its first token: imports, loading, and the rate of loading."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ninfer.bench.report import Row
from ninfer.engine import Engine, EngineOptions, GenerationOptions
from ninfer.errors import GenerationError
from ninfer.frontend import parse_conversation

_LIMIT_S: Final = 900.0
_CHILD: Final = "from ninfer.bench.start import child; child()"
_BARE: Final = "import time; print(time.monotonic())"
_MARKS: Final = ("imported", "loaded", "first")


def child() -> None:
    """The measured process: reads options as JSON from stdin, prints when it had come how far.

    Its clock is the system's monotonic one, which the process that started it reads as well.
    """
    imported = time.monotonic()
    fields: dict[str, Any] = json.loads(sys.stdin.read())
    done = 0

    def progress(name: str, so_far: int, total: int) -> None:
        nonlocal done
        done = so_far

    options = EngineOptions(**{**fields, "artifact": Path(fields["artifact"])})
    engine = Engine.load(options, progress)
    loaded = time.monotonic()
    prompt = engine.prepare(parse_conversation([{"role": "user", "content": "Hello."}]))
    for _ in engine.generate(prompt, GenerationOptions(max_new=1, greedy=True)):
        break
    marks = {"imported": imported, "loaded": loaded, "first": time.monotonic(), "bytes": done}
    sys.stdout.write(json.dumps(marks) + "\n")


def measure_start(options: EngineOptions, given: dict[str, Any], repeats: int) -> list[Row]:
    """Rows of so many starts, after one that is not counted and fills the caches.

    `given` are the engine's options that a start is to have, as JSON values. Raises
    GenerationError with the last words of a process that fails.
    """
    fields = json.dumps({**given, "artifact": str(options.artifact)})
    bare = sorted(_seconds(_BARE, "")["at"] for _ in range(repeats))
    starts = [_seconds(_CHILD, fields) for _ in range(1 + repeats)][1:]
    size = int(starts[0]["bytes"])
    read = sorted(_read_seconds(options.artifact) for _ in range(repeats))
    shape: dict[str, int | str] = {"artifact": options.artifact.name, "bytes": size}
    middle = repeats // 2
    loads = [one["loaded"] - one["imported"] for one in starts]
    file_rate = options.artifact.stat().st_size / read[middle] / 1e9
    first = [1e3 * one["first"] for one in starts]
    least = 1e3 * (bare[middle] + read[middle])
    imports = [1e3 * one["imported"] for one in starts]
    rates = [size / seconds / 1e9 for seconds in loads]
    return [
        _row("imports", shape, "ms", imports, ("bare Python", 1e3 * bare[middle])),
        _row("process start to first token", shape, "ms", first, ("Python, one read", least)),
        _row("load", shape, "GB/s", rates, ("one thread reads the file", file_rate)),
    ]


def _row(
    name: str,
    shape: dict[str, int | str],
    unit: str,
    values: Sequence[float],
    reference: tuple[str, float],
) -> Row:
    ordered = sorted(values)
    return Row(
        name=name,
        shape=shape,
        unit=unit,
        value=ordered[len(ordered) // 2],
        low=ordered[0],
        high=ordered[-1],
        repeats=len(ordered),
        reference_name=reference[0],
        reference=reference[1],
    )


def _seconds(code: str, given: str) -> dict[str, float]:
    """Run a process; its marks in seconds from its start, all else as it said it."""
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=given,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no words"]
        raise GenerationError(f"the measured process failed: {last[0][:500]}")
    said = json.loads(done.stdout.splitlines()[-1])
    if isinstance(said, float):
        return {"at": said - begun}
    return {name: value - begun if name in _MARKS else value for name, value in said.items()}


def _read_seconds(path: Path) -> float:
    begun = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(16 << 20)
        while file.readinto(buffer):
            pass
    return max(time.perf_counter() - begun, 1e-9)
