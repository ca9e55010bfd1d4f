"""The source map of each registered model, and the choice of draft ids."""

import json
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
import torch

from ninfer.artifact.directory import Identity
from ninfer.convert.checkpoint import Checkpoint
from ninfer.convert.draft_ids import choose_draft_ids, read_counts, special_ids
from ninfer.convert.qwen3_6 import source_map
from ninfer.convert.source_map import Stack, every, span, transposed, whole
from ninfer.convert.source_rows import overlaps, read_rows, row_spans
from ninfer.errors import CheckpointError
from ninfer.models import REGISTERED, TensorSpec, object_specs
from ninfer.models.config import ModelConfig
from ninfer.models.qwen3_6 import recipe_for
from ninfer.models.qwen3_6.sizes import DFLASH2_27B


def configuration(key: tuple[str, str]) -> ModelConfig:
    config = REGISTERED[key]
    return replace(config, dflash2=DFLASH2_27B) if key[0].startswith("qwen3.8") else config


@pytest.mark.parametrize("key", sorted(REGISTERED), ids="/".join)
@pytest.mark.parametrize("split", [False, True], ids=["fused", "split"])
def test_every_object_has_a_source_of_its_shape(key: tuple[str, str], split: bool) -> None:
    config = configuration(key)
    sources = source_map(config, recipe_for(config, key[1]), lambda name: split)
    specs = [s for s in object_specs(Identity(*key), config) if isinstance(s, TensorSpec)]
    for spec in specs:
        source = sources[spec.name]
        if isinstance(source, Stack):
            assert sum(p.count * p.width for p in source.pieces) == prod(spec.shape), spec
            if len(spec.shape) == 2:
                assert sum(piece.count for piece in source.pieces) == spec.shape[0], spec


@pytest.mark.parametrize(
    ("key", "main", "drafter"),
    [
        (("qwen3.6-27b", "groupwise-int"), 1199, 0),
        (("qwen3.6-27b", "nvfp4"), 1199, 0),
        (("qwen3.8-27b", "groupwise-int"), 1199, 81),
        (("qwen3.6-35b-a3b", "groupwise-int"), 1045, 69),
    ],
    ids=["27b", "27b-nvfp4", "38-27b", "35b"],
)
def test_the_published_checkpoints_are_used_to_the_last_tensor(
    key: tuple[str, str], main: int, drafter: int
) -> None:
    config = configuration(key)
    sources = source_map(config, recipe_for(config, key[1]), lambda name: False)
    names: dict[str, set[str]] = {"drafter": set(), "main": set()}
    for source in sources.values():
        if isinstance(source, Stack):
            group = "drafter" if source.origin == "drafter" else "main"
            names[group] |= {piece.tensor for piece in source.pieces}
    assert (len(names["main"]), len(names["drafter"])) == (main, drafter)


def test_pieces_read_the_rows_that_they_name() -> None:
    matrix = torch.arange(24 * 3).reshape(24, 3)
    cube = matrix.reshape(4, 6, 3)
    cases = [
        (whole("t", 24, 3), matrix, matrix),
        (whole("t", 4, 6, 3), cube, matrix),
        (whole("t", 4, 6, 3, columns=18), cube, matrix.reshape(4, 18)),
        (span("t", (24, 3), 5, 7), matrix, matrix[5:12]),
        (every("t", (24, 3), 6, 2, 3), matrix, cube[:, 2:5].reshape(12, 3)),
        (transposed("t", 24, 1, 3), matrix.reshape(24, 1, 3), matrix.t()),
    ]
    for rows, source, wanted in cases:
        assert (rows.count, rows.width) == tuple(wanted.shape)
        for start in range(rows.count):
            for stop in range(start + 1, rows.count + 1):
                assert torch.equal(read_rows(source, rows, start, stop), wanted[start:stop])


def test_packed_fields_follow_the_rows_of_their_matrix() -> None:
    rows = every("t", (8, 32), 4, 2, 2)
    packed = torch.arange(8 * 16).reshape(8, 16)
    assert torch.equal(read_rows(packed, rows, 1, 4, share=2), packed[[3, 6, 7]])
    scales = torch.arange(8 * 2).reshape(8, 2)
    assert torch.equal(read_rows(scales, rows, 0, 3, share=16), scales[[2, 3, 6]])


def test_blocks_cover_a_stack_of_pieces_once() -> None:
    pieces = (whole("a", 300, 4), span("b", (50, 4), 10, 20), whole("c", 180, 4))
    found = [
        (piece.tensor, row)
        for start in range(0, 500, 128)
        for piece, low, high in overlaps(pieces, start, min(start + 128, 500))
        for row in range(low, high)
    ]
    wanted = [(piece.tensor, row) for piece in pieces for row in range(piece.count)]
    assert found == wanted
    spans = list(row_spans(1000, 1 << 18))
    assert spans[0] == (0, 128) and spans[-1] == (896, 1000)
    assert [start for start, _ in spans[1:]] == [stop for _, stop in spans[:-1]]


def naive_ids(counts: list[int], forced: list[int], addressable: int, rows: int) -> list[int]:
    """The rule once more, in plain Python."""
    order = sorted(range(addressable), key=lambda token: (-counts[token], token))
    kept = [token for token in order if token not in forced][: rows - len(forced)]
    return sorted(kept + sorted(forced), key=lambda token: -counts[token])


@pytest.mark.parametrize("seed", range(20))
def test_draft_ids_follow_the_rule(seed: int) -> None:
    generator = np.random.default_rng(seed)
    addressable = int(generator.integers(20, 60))
    rows = int(generator.integers(8, addressable + 1))
    counts = generator.integers(0, 5, size=64)
    forced = sorted(generator.choice(addressable, size=6, replace=False).tolist())
    found = choose_draft_ids(torch.from_numpy(counts), forced, addressable, rows).tolist()
    assert found == naive_ids(counts.tolist(), forced, addressable, rows)
    assert set(forced) <= set(found) and len(set(found)) == rows


def test_equal_counts_put_forced_ids_last() -> None:
    ids = choose_draft_ids(torch.tensor([3, 3, 3, 9]), [0], addressable=4, rows=4)
    assert ids.tolist() == [3, 1, 2, 0]


def test_draft_ids_without_room_are_refused() -> None:
    counts = torch.zeros(8, dtype=torch.int64)
    with pytest.raises(CheckpointError, match="cannot hold 3 special tokens"):
        choose_draft_ids(counts, [1, 2, 3], addressable=8, rows=2)
    with pytest.raises(CheckpointError, match="special token 7 is not below 6"):
        choose_draft_ids(counts, [1, 7], addressable=6, rows=4)


def test_counts_are_read_raw_and_as_numpy(tmp_path: Path) -> None:
    counts = np.arange(30, dtype="<i8").reshape(3, 10)
    counts.tofile(tmp_path / "raw.bin")
    np.save(tmp_path / "array.npy", counts)
    for name in ("raw.bin", "array.npy"):
        assert read_counts(tmp_path / name, 10).tolist() == list(range(10))


@pytest.mark.parametrize(
    ("words", "extra", "message"),
    [
        ([1] * 9, b"", "holds 9 counts; expected rows of 10"),
        ([], b"", "holds 0 counts"),
        ([1] * 10, b"xyz", "expected rows of 10"),
        ([1, 2, -1] + [0] * 7, b"", "id 2 has a negative count"),
    ],
)
def test_bad_counts_are_refused(
    tmp_path: Path, words: list[int], extra: bytes, message: str
) -> None:
    path = tmp_path / "counts"
    path.write_bytes(np.array(words, dtype="<i8").tobytes() + extra)
    with pytest.raises(CheckpointError, match=message):
        read_counts(path, 10)


def test_a_numpy_file_of_floats_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "floats.npy", np.zeros(10))
    with pytest.raises(CheckpointError, match="64-bit integers"):
        read_counts(tmp_path / "floats.npy", 10)
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(CheckpointError, match="not a NumPy array"):
        read_counts(tmp_path / "text.npy", 10)
    with pytest.raises(CheckpointError, match="No such file"):
        read_counts(tmp_path / "none", 10)


def test_special_ids_are_those_marked_so() -> None:
    added = {"9": {"special": True}, "3": {"special": True}, "5": {"special": False}, "6": {}}
    assert special_ids({"added_tokens_decoder": added}) == [3, 9]


def test_a_text_only_checkpoint_goes_by_the_same_names(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file(
        {"model.layers.0.A_log": torch.ones(2), "lm_head.weight": torch.ones(2, 2)},
        tmp_path / "model.safetensors",
    )
    checkpoint = Checkpoint(tmp_path)
    assert sorted(checkpoint.names) == ["lm_head.weight", "model.language_model.layers.0.A_log"]
    assert checkpoint.read("model.language_model.layers.0.A_log").tolist() == [1, 1]


def test_an_index_with_a_path_is_refused(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "../secret.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="is not a file name"):
        Checkpoint(tmp_path)
