"""Checkpoints of the conversion tests, each made once."""

from pathlib import Path

import pytest
from checkpoints import DRAFT_ROWS, Made, write_checkpoint, write_counts

from ninfer.convert import ConvertOptions, convert


def made(folder: Path, *, moe: bool) -> Made:
    source = folder / "source"
    source.mkdir()
    model = write_checkpoint(source, moe=moe)
    counts = write_counts(folder / "counts.bin")
    options = ConvertOptions(
        target="small/groupwise-int",
        source=source,
        draft_counts=folder / "counts.bin",
        draft_head_rows=DRAFT_ROWS,
        output=folder / "out.ninfer",
    )
    convert(options)
    assert options.output is not None
    return Made(source, model, counts, options, options.output, moe)


@pytest.fixture(scope="session")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(tmp_path_factory.mktemp("dense"), moe=False)


@pytest.fixture(scope="session")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(tmp_path_factory.mktemp("sparse"), moe=True)


@pytest.fixture(scope="session", params=["dense", "moe"])
def either(request: pytest.FixtureRequest) -> Made:
    return request.getfixturevalue("sparse" if request.param == "moe" else "dense")
