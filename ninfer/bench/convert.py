"""Rate and peak memory of converting one layer of each kind at the published sizes."""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from ninfer.bench.report import Row, rate_row
from ninfer.bench.timer import measure
from ninfer.convert import build_tokenizer
from ninfer.convert.qwen3_6 import source_map
from ninfer.convert.source_map import Stack
from ninfer.errors import ArtifactError
from ninfer.models import ModelConfig, TextConfig, components_of
from ninfer.models.qwen3_6 import recipe_for
from ninfer.models.qwen3_6.sizes import DENSE_27B, MOE_35B

MEGABYTE: Final = 1e6
# What a conversion may take, in MiB.
MEMORY_LIMIT: Final = 8192.0
# Little, so that layers are what is measured.
VOCABULARY: Final = 1024
# Words that the files are filled with, over and over; 64 MiB.
_FILL_WORDS: Final = 1 << 25

# Linux keeps the peak of a process image there; the usual counter starts at that of the parent.
_CHILD: Final = """
import sys
from ninfer.cli import main
status = main(["convert", "--target", "bench/groupwise-int", *sys.argv[1:]])
lines = open("/proc/self/status").read().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
sys.exit(status)
"""


def layer_sets() -> dict[str, ModelConfig]:
    """One layer of each kind of the 27B, and a full-attention layer with experts of the 35B."""
    dense = replace(DENSE_27B.text, layers=2, attention_interval=2)
    sparse = replace(MOE_35B.text, layers=1, attention_interval=1)
    return {"27b layers": _text_only(dense), "35b layer": _text_only(sparse)}


def _text_only(text: TextConfig) -> ModelConfig:
    small = replace(text, vocab_rows=VOCABULARY, addressable=VOCABULARY)
    return ModelConfig(small, mtp=False, draft_head_rows=0)


def write_source(folder: Path, config: ModelConfig) -> int:
    """A checkpoint of random bfloat16 numbers; returns the bytes of its weights."""
    tensors = source_shapes(config)
    header, end = {}, 0
    for name, shape in tensors.items():
        start, end = end, end + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        _fill(file, end)
    (folder / "config.json").write_text(json.dumps(components_of(config, {})["text"].config))
    for name, data in build_tokenizer(VOCABULARY).items():
        (folder / name.rsplit("/", 1)[-1]).write_bytes(data)
    for name in ("preprocessor_config.json", "video_preprocessor_config.json"):
        (folder / name).write_text("{}")
    return end


def source_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of each tensor that a conversion to groupwise-int reads."""
    sources = source_map(config, recipe_for(config, "groupwise-int"), lambda name: False)
    return {
        piece.tensor: piece.shape
        for source in sources.values()
        if isinstance(source, Stack)
        for piece in source.pieces
    }


def run(*, sets: Mapping[str, ModelConfig] | None = None, repeats: int = 3) -> list[Row]:
    """Convert each layer set in a process of its own, which reports its peak memory.

    The command itself compares the file with its sources before it gives it a name; its rate, in
    megabytes of source, includes starting Python and that comparison. Raises ArtifactError when
    the command fails.
    """
    rows = []
    for name, config in (sets or layer_sets()).items():
        with tempfile.TemporaryDirectory() as place:
            folder, peaks = Path(place), list[float]()
            amount = write_source(folder, config) / MEGABYTE
            copied = measure(partial(_copy, folder), repeats=repeats)
            taken = measure(lambda: peaks.append(convert_apart(folder)), repeats=repeats)  # noqa: B023  # called before the loop goes on
        shape = {"source MB": round(amount)}
        roof = ("file copy", amount / copied.median)
        rows.append(rate_row(f"convert {name}", shape, "MB/s", amount, taken, roof))
        rows.append(_memory_row(f"convert {name}", shape, peaks))
    return rows


def convert_apart(folder: Path) -> float:
    """Convert a checkpoint folder in a new process; returns the most MiB that it had in memory."""
    output = folder / "out.ninfer"
    output.unlink(missing_ok=True)
    command = [sys.executable, "-c", _CHILD, "--source", str(folder), "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not output.is_file():
        raise ArtifactError(f"conversion failed, nothing was timed: {done.stderr.strip()}")
    return int(done.stdout) / 1024


def _memory_row(name: str, shape: Mapping[str, int | str], peaks: list[float]) -> Row:
    return Row(
        name=f"{name}, peak memory",
        shape=shape,
        unit="MiB",
        value=statistics.median(peaks),
        low=min(peaks),
        high=max(peaks),
        repeats=len(peaks),
        reference_name="limit",
        reference=MEMORY_LIMIT,
    )


def _copy(folder: Path) -> None:
    shutil.copyfile(folder / "model.safetensors", folder / "copy")


def _fill(file: BinaryIO, size: int) -> None:
    numbers = np.random.default_rng(0).standard_normal(_FILL_WORDS, dtype=np.float32)
    words = (numbers.view(np.uint32) >> 16).astype("<u2").tobytes()
    for start in range(0, size, len(words)):
        file.write(words[: size - start])
