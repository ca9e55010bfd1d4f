"""Make the artifact of a demo checkpoint: `python -m recipes.tiny.make CHECKPOINT --name tiny`.

Counts which tokens the tasks' answers have, for the rows of the draft head, converts, checks the
size, and writes down the SHA-256 of what went in and what came out.
"""

import argparse
import hashlib
import json
import random
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ninfer.artifact.digest import file_sha256
from ninfer.artifact.packaged import FOLDER, NAMES, RECORDS, path_of_name
from ninfer.convert import ConvertOptions, convert
from recipes.tiny.encode import FILES, TOKENIZER_FOLDER, Encoded, Encoder
from recipes.tiny.geometry import DRAFT_HEAD_ROWS, VOCAB_ROWS, config_of
from recipes.tiny.heldout import is_held_out
from recipes.tiny.mixture import MIXTURES, task_makers

LIMIT: Final = 12 << 20
SAMPLES: Final = 6000
SEED: Final = 9
# Text files whose change asks for another training; the others say how to use a model.
TRAINED_ON: Final = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
RESULTS: Final = Path(__file__).parent / "results"


def training_samples(name: str, count: int) -> Iterator[Encoded]:
    """Samples as training draws them; the same on every call."""
    rng, encoder, makers = random.Random(SEED), Encoder(), task_makers()
    tasks, shares = list(MIXTURES[name]), list(MIXTURES[name].values())
    while count:
        sample = makers[rng.choices(tasks, shares)[0]](rng)
        if not is_held_out(sample):
            count -= 1
            yield encoder.encode(sample)


def answer_counts(name: str, count: int = SAMPLES) -> NDArray[np.int64]:
    """How often each of VOCAB_ROWS ids is written in the answers of `count` samples."""
    total = np.zeros(VOCAB_ROWS, dtype="<i8")
    for encoded in training_samples(name, count):
        total += np.bincount(encoded.ids[encoded.target], minlength=VOCAB_ROWS)
    return total


def make(name: str, checkpoint: Path, drafter: Path | None, output: Path) -> dict[str, Any]:
    """Write the artifact; returns the record of it and of what it was made of.

    Of `checkpoint` the weights are read, and config.json if it is there; text files are those of
    the recipe. Raises ValueError for one that was trained on another tokenizer or template, and for
    a file above LIMIT, which is removed; besides what `ninfer.convert` raises.
    """
    with tempfile.TemporaryDirectory() as folder:
        counts, source = Path(folder) / "counts", Path(folder) / "source"
        answer_counts(name).tofile(counts)
        _complete(name, checkpoint, source)
        options = ConvertOptions(
            target=f"{name}/groupwise-int",
            source=source,
            drafter_source=drafter,
            draft_counts=counts,
            draft_head_rows=DRAFT_HEAD_ROWS,
            output=output,
        )
        output.unlink(missing_ok=True)
        done = convert(options)
        sources = {"checkpoint": source, **({"drafter": drafter} if drafter else {})}
        digests = {part: dict(_digests(folder)) for part, folder in sources.items()}
    size = output.stat().st_size
    if size > LIMIT or done.unused:
        output.unlink()
        raise ValueError(f"{output}: {size:,} bytes of {LIMIT:,}, not used: {done.unused}")
    return {
        **digests,
        "artifact": {
            "name": name,
            "id": options.target,
            "bytes": size,
            "sha256": file_sha256(output, lambda *_: None),
        },
    }


def record(made: Mapping[str, Any], results: Path, records: Path) -> None:
    """Write the record below `results` and put the artifact's into the file `records`."""
    artifact = made["artifact"]
    _write(results / f"{artifact['name']}.json", made)
    known = {item["name"]: item for item in json.loads(records.read_text("utf-8"))}
    known[artifact["name"]] = artifact
    _write(records, [known[name] for name in NAMES if name in known])


def _complete(name: str, checkpoint: Path, source: Path) -> None:
    """A folder with the weights of a checkpoint and today's text files."""
    source.mkdir()
    for path in checkpoint.glob("*.safetensors*"):
        (source / path.name).symlink_to(path.resolve())
    for file in FILES:
        data, own = (TOKENIZER_FOLDER / file).read_bytes(), checkpoint / file
        if file in TRAINED_ON and own.exists() and own.read_bytes() != data:
            raise ValueError(f"{own} is not the file of the recipe; train again")
        (source / file).write_bytes(data)
    config = checkpoint / "config.json"
    sizes = config.read_text("utf-8") if config.exists() else json.dumps(config_of(name), indent=2)
    (source / "config.json").write_text(sizes, "utf-8")


def _digests(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.iterdir()):
        yield path.name, hashlib.sha256(path.read_bytes()).hexdigest()


def _write(path: Path, values: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Make an artifact, and record it when it is one of the package."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="folder in Hugging Face form")
    parser.add_argument("--drafter", type=Path, help="folder of the block drafter")
    parser.add_argument("--name", choices=NAMES, required=True)
    parser.add_argument("-o", "--output", type=Path, help="default: that of the package")
    given = parser.parse_args()
    packaged = path_of_name(given.name)
    output = given.output or packaged
    made = make(given.name, given.checkpoint, given.drafter, output)
    print(json.dumps(made["artifact"]))
    if output.resolve() == packaged:
        record(made, RESULTS, FOLDER / RECORDS)


if __name__ == "__main__":
    main()
