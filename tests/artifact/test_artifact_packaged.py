"""Artifacts of the package: names to files, records that agree with them, what verify says."""

import hashlib
import json
from pathlib import Path

import pytest

from ninfer.artifact import packaged
from ninfer.artifact.packaged import FOLDER, NAMES, PackagedArtifact, locate, packaged_artifacts
from ninfer.artifact.verify import Finding, check_published
from ninfer.cli import main
from ninfer.engine import Engine
from ninfer.engine.options import EngineOptions
from ninfer.errors import UsageError

MOST_BYTES = 12 << 20


def test_records_agree_with_the_files() -> None:
    files = {path.stem: path for path in FOLDER.glob("*.ninfer")}
    records = {item.name: item for item in packaged_artifacts()}
    assert set(records) == set(files) <= set(NAMES)
    for name, path in files.items():
        data = path.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        expected = PackagedArtifact(name, f"{name}/groupwise-int", len(data), digest)
        assert records[name] == expected
        assert len(data) <= MOST_BYTES


@pytest.fixture
def folder(
    tmp_path: Path, micro_artifacts: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A package with one small artifact, and an empty current folder."""
    assets, here = tmp_path / "assets", tmp_path / "here"
    assets.mkdir()
    here.mkdir()
    data = micro_artifacts["dense"].read_bytes()
    (assets / "tiny.ninfer").write_bytes(data)
    record = {
        "name": "tiny",
        "id": "tiny/groupwise-int",
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    (assets / "artifacts.json").write_text(json.dumps([record]))
    monkeypatch.setattr(packaged, "FOLDER", assets)
    monkeypatch.chdir(here)
    return assets


def test_names_and_files(folder: Path) -> None:
    assert locate(Path("tiny")) == folder / "tiny.ninfer"
    assert locate(folder / "tiny.ninfer") == folder / "tiny.ninfer"
    for path in (Path("tiny.ninfer"), Path("models/tiny"), Path("/tiny")):
        assert locate(path) == path
    # A folder is no artifact, a file of that name may be one.
    Path("tiny").mkdir()
    assert locate(Path("tiny")) == folder / "tiny.ninfer"
    Path("tiny").rmdir()
    Path("tiny").write_bytes(b"")
    assert locate(Path("tiny")) == Path("tiny")
    Path("mine").write_bytes(b"")
    assert locate(Path("mine")) == Path("mine")


def test_another_word_is_refused(folder: Path) -> None:
    message = r"'huge' is neither a file nor an artifact of the package \(tiny, tiny-moe\)"
    with pytest.raises(UsageError, match=message):
        locate(Path("huge"))


def finding(path: Path) -> Finding:
    return check_published(path, lambda *_: None)


def test_a_file_of_the_package_must_be_the_recorded_one(folder: Path, tmp_path: Path) -> None:
    path = folder / "tiny.ninfer"
    expected = "SHA-256 is that of the published tiny/groupwise-int (of the package)"
    assert (finding(path).verdict, finding(path).text) == ("ok", expected)
    copy = tmp_path / "copy.ninfer"
    data = path.read_bytes()
    copy.write_bytes(data)
    assert finding(copy).text == expected
    for damaged in (data[:-1], data[:-1] + bytes([data[-1] ^ 1])):
        path.write_bytes(damaged)
        assert finding(path).verdict == "bad"
        assert "must be tiny/groupwise-int (of the package), but the SHA-256 is" in str(
            finding(path)
        )
    copy.write_bytes(data[:-1])
    assert finding(copy).verdict == "note"


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(list(arguments))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_commands_take_the_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "describe", "tiny")
    assert status == 0 and "synthetic/qwen3.6-27b-micro" in out
    status, out, _ = call(capsys, "verify", "tiny")
    assert status == 0 and "ok    hash" in out
    status, out, _ = call(capsys, "plan", "tiny", "--device", "cpu", "--max-context", "256")
    assert status == 0 and out
    options = ("--prompt", "a", "--max-new", "4", "--max-context", "256", "--device", "cpu")
    status, first, err = call(capsys, "run", "tiny", "--greedy", "--no-thinking", *options)
    assert status == 0, err
    assert call(capsys, "tiny", "--greedy", "--no-thinking", *options)[:2] == (0, first)
    status, _, err = call(capsys, "verify", "huge")
    assert status == 2 and "'huge' is neither a file nor an artifact of the package" in err


def test_the_engine_takes_the_name(folder: Path) -> None:
    engine = Engine.load(EngineOptions(artifact=Path("tiny"), device="cpu", max_context=256))
    assert engine.prepare is not None
    with pytest.raises(UsageError, match="'huge' is neither"):
        Engine.load(EngineOptions(artifact=Path("huge"), device="cpu"))
