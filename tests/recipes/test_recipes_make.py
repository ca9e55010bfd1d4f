"""From a checkpoint to the packaged artifact: draft head, size limit, records."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from demo_models import DRAFTER, reduced_config, untrained

from ninfer.artifact import open_artifact
from ninfer.artifact.packaged import NAMES, PackagedArtifact
from recipes.tiny import make
from recipes.tiny.checkpoint import save_checkpoint, save_drafter, save_weights
from recipes.tiny.drafter import Drafter
from recipes.tiny.encode import FILES, TOKENIZER_FOLDER, Encoder
from recipes.tiny.geometry import ADDRESSABLE, DRAFT_HEAD_ROWS, config_of
from recipes.tiny.model import DemoModel

SAMPLES = 60


@pytest.fixture(autouse=True)
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = make.answer_counts
    monkeypatch.setattr(make, "answer_counts", lambda name: counted(name, SAMPLES))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save_checkpoint(untrained("tiny"), reduced_config("tiny"), tmp_path / "source")
    return tmp_path / "source"


def test_counts_are_of_answers_and_the_same_again() -> None:
    counts = make.answer_counts("tiny")
    assert np.array_equal(counts, make.answer_counts("tiny"))
    special = Encoder().tokenizer.special
    # One end for each answer, and one for each call of a tool before it.
    assert SAMPLES <= counts[special["<|im_end|>"]] < 2 * SAMPLES
    assert counts[special["<|im_start|>"]] == 0
    assert counts[ADDRESSABLE:].sum() == 0
    assert (counts > 0).sum() > 200


def test_the_draft_head_has_the_most_frequent_tokens(checkpoint: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.ninfer"
    make.make("tiny", checkpoint, None, output)
    counts = torch.from_numpy(make.answer_counts("tiny"))
    with open_artifact(output) as artifact:
        ids = artifact.tensor("text/draft_head_token_ids").long()
    assert len(ids) == DRAFT_HEAD_ROWS
    assert set(counts.nonzero().flatten().tolist()) <= set(ids.tolist())
    assert (counts[ids].diff() <= 0).all()


@pytest.mark.parametrize("drafter", [False, True])
def test_the_record_names_every_file(drafter: bool, tmp_path: Path) -> None:
    name, extra = ("tiny-moe", tmp_path / "drafter") if drafter else ("tiny", None)
    save_checkpoint(untrained(name), reduced_config(name), tmp_path / "source")
    if extra:
        save_drafter(Drafter(DRAFTER).state_dict(), extra, DRAFTER)
    output = tmp_path / "out.ninfer"
    made = make.make(name, tmp_path / "source", extra, output)
    for part, folder in (("checkpoint", tmp_path / "source"), ("drafter", extra)):
        # The checkpoint's text files are the recipe's, so all of them were read.
        if folder:
            digests = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}
            assert made[part] == digests
    assert set(made) == {"checkpoint", "artifact", *(["drafter"] if drafter else [])}
    data = output.read_bytes()
    assert PackagedArtifact(**made["artifact"]) == PackagedArtifact(
        name, f"{name}/groupwise-int", len(data), hashlib.sha256(data).hexdigest()
    )


def test_text_files_are_those_of_the_recipe(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "generation_config.json").write_text('{"do_sample": true}')
    (checkpoint / "preprocessor_config.json").unlink()
    made = make.make("tiny", checkpoint, None, tmp_path / "out.ninfer")
    with open_artifact(tmp_path / "out.ninfer") as artifact:
        for name in FILES:
            data = (TOKENIZER_FOLDER / name).read_bytes()
            assert bytes(artifact.resource(f"frontend/{name}")) == data
            assert made["checkpoint"][name] == hashlib.sha256(data).hexdigest()


def test_weights_that_came_alone_have_the_sizes_of_their_name(tmp_path: Path) -> None:
    state = DemoModel(config_of("tiny"), torch.float32).state_dict()
    (tmp_path / "source").mkdir()
    save_weights(state, tmp_path / "source")
    made = make.make("tiny", tmp_path / "source", None, tmp_path / "out.ninfer")
    assert 11 << 20 < made["artifact"]["bytes"] <= make.LIMIT


@pytest.mark.parametrize("file", make.TRAINED_ON)
def test_a_checkpoint_of_another_tokenizer_is_refused(
    file: str, checkpoint: Path, tmp_path: Path
) -> None:
    (checkpoint / file).write_bytes(b"{}")
    with pytest.raises(ValueError, match=f"{file} is not the file of the recipe; train again"):
        make.make("tiny", checkpoint, None, tmp_path / "out.ninfer")


def test_a_file_above_the_limit_does_not_stay(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make, "LIMIT", 1000)
    with pytest.raises(ValueError, match=r"out\.ninfer: [\d,]+ bytes of 1,000"):
        make.make("tiny", checkpoint, None, tmp_path / "out.ninfer")
    assert not (tmp_path / "out.ninfer").exists()


def test_records_of_other_artifacts_stay(tmp_path: Path) -> None:
    records = tmp_path / "artifacts.json"
    records.write_text("[]")
    for name, size in (("tiny-moe", 1), ("tiny", 2), ("tiny-moe", 3)):
        artifact = {"name": name, "id": f"{name}/x", "bytes": size, "sha256": "0"}
        make.record({"artifact": artifact}, tmp_path / "results", records)
    found = [PackagedArtifact(**item) for item in json.loads(records.read_text())]
    assert [(item.name, item.bytes) for item in found] == [("tiny", 2), ("tiny-moe", 3)]
    assert {path.stem for path in (tmp_path / "results").iterdir()} == set(NAMES)
