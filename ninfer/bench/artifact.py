"""How long opening a full-size artifact takes, measured on a sparse file of the 27B inventory."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ninfer.artifact import Directory, Identity, open_artifact
from ninfer.artifact.directory import encode_directory
from ninfer.artifact.framing import HEADER_BYTES, encode_header
from ninfer.bench.report import Row, time_row
from ninfer.bench.timer import measure
from ninfer.engine.registered import full_directory
from ninfer.errors import ArtifactError

IDENTITY: Final = Identity("qwen3.6-27b", "groupwise-int")


def write_sparse(path: Path, directory: Directory) -> None:
    """A file with this directory whose payload is a hole that takes no disk space."""
    head = encode_header(encode_directory(directory))
    last = directory.entries[-1]
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + last.offset + last.bytes)


def check(path: Path, directory: Directory) -> None:
    """Raise ArtifactError when the opened file has another directory than was written."""
    with open_artifact(path) as artifact:
        if artifact.directory != directory:
            raise ArtifactError(f"{path}: the directory read differs; nothing was timed")


def run(*, repeats: int = 9) -> list[Row]:
    """Check, then time opening; beside it, reading and parsing the same JSON without any check."""
    directory = full_directory(IDENTITY)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sparse.ninfer"
        write_sparse(path, directory)
        check(path, directory)
        plain = measure(_parse_only(path), repeats=repeats)
        opened = measure(lambda: open_artifact(path).close(), repeats=repeats)
        shape = {"bytes": path.stat().st_size, "objects": len(directory.entries)}
    return [time_row("open artifact", shape, opened, ("JSON parse alone", plain.median))]


def _parse_only(path: Path) -> Callable[[], object]:
    def parse() -> object:
        with path.open("rb") as file:
            head = file.read(HEADER_BYTES)
            return json.loads(file.read(int.from_bytes(head[8:], "little")))

    return parse
