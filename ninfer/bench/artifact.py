"""How long opening a full-size artifact takes, measured on a sparse file of the 27B inventory."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ninfer.artifact import (
    Directory,
    Identity,
    ResourceSpec,
    TensorSpec,
    open_artifact,
    plan_directory,
)
from ninfer.artifact.directory import encode_directory
from ninfer.artifact.framing import HEADER_BYTES, encode_header
from ninfer.bench.report import Row, time_row
from ninfer.bench.timer import measure
from ninfer.errors import ArtifactError
from ninfer.models import TensorSpec as TensorWanted
from ninfer.models import object_specs, resolve_config

IDENTITY: Final = Identity("qwen3.6-27b", "groupwise-int")
# The published tokenizer is about this long; the other resources are shorter.
RESOURCE_BYTES: Final = 12_000_000


def full_directory(identity: Identity = IDENTITY) -> Directory:
    """The directory of a whole artifact, Qwen3.6-27B unless another registered one is named."""
    wanted = object_specs(identity, resolve_config(identity, None))
    specs = [
        TensorSpec(spec.name, spec.shape, spec.format)
        if isinstance(spec, TensorWanted)
        else ResourceSpec(spec.name, RESOURCE_BYTES)
        for spec in wanted
    ]
    return plan_directory(identity, specs)


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
    directory = full_directory()
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
