"""`ninfer convert` as a person types it: tables, messages and exit statuses."""

import json
from pathlib import Path

import pytest

from ninfer.bench.convert import write_source
from ninfer.cli import main
from ninfer.models import ModelConfig
from ninfer.models.config import AttentionSizes, GdnSizes, TextConfig

TEXT = TextConfig(
    hidden=128,
    layers=2,
    attention_interval=2,
    mlp_width=256,
    vocab_rows=1024,
    addressable=1024,
    eps=1e-6,
    context=4096,
    attention=AttentionSizes(2, 1, 64, 16, 1e7),
    gdn=GdnSizes(1, 2, 32, 32, 4),
)


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main(["convert", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    write_source(folder, ModelConfig(TEXT, mtp=False, draft_head_rows=0))
    return folder


def test_a_checkpoint_becomes_a_file_that_runs(
    capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.ninfer"
    status, out, err = call(
        capsys, "--target", "me/groupwise-int", "--source", source, "-o", output
    )
    assert (status, out) == (0, "")
    assert f"{output}: {output.stat().st_size:,} bytes, " in err and "earlier run" not in err
    run = ["run", str(output), "--prompt", "hi", "--max-new", "2", "--max-context", "64"]
    assert main([*run, "--device", "cpu"]) == 0


def test_a_resumed_run_says_so(
    capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.ninfer"
    arguments = ["--target", "me/groupwise-int", "--source", source, "-o", output]
    assert call(capsys, *arguments)[0] == 0
    journal = output.with_name("out.ninfer.partial.journal")
    partial = output.with_name("out.ninfer.partial")
    # The state of a run that was stopped after its first three objects.
    honest = Path.replace
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", lambda self, target: (_ for _ in ()).throw(OSError(5, "no")))
        status, _, err = call(capsys, *arguments)
    assert status == 1 and "out.ninfer: cannot be written: no" in err
    assert Path.replace is honest
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:4]))
    assert partial.exists()
    status, _, err = call(capsys, *arguments)
    assert status == 0 and "3 of them from an earlier run" in err


def test_a_dry_run_prints_every_object_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path
) -> None:
    before = sorted(tmp_path.rglob("*"))
    status, out, err = call(
        capsys, "--target", "me/groupwise-int", "--source", source, "--dry-run", "-o", "x.ninfer"
    )
    assert (status, err) == (0, "")
    assert "text/layers/1/attention/query_key " in out and "frontend/tokenizer.json" in out
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_of_a_registered_target_needs_no_source(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, _ = call(
        capsys, "--target", "qwen3.6-27b/nvfp4", "--dry-run", "--resource-bytes", 12_833_536
    )
    assert status == 0
    assert "size      18,324,064,000 bytes, payload from 208,896" in out
    assert "objects   1,307" in out
    assert sum(line.startswith(("text/", "vision/", "mtp/")) for line in out.splitlines()) > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--target MODEL/WEIGHTS is missing"),
        (["--target", "a"], "--target a: must be MODEL/WEIGHTS"),
        (["--target", "a/b"], "--source DIR is missing"),
        (["--target", "a/b", "--source", "d"], "--output FILE is missing"),
        (
            ["--target", "a/b", "--source", "d", "-o", "f", "--resource-bytes", "9"],
            "only --dry-run",
        ),
        (["--target", "a/b", "--dry-run", "--resource-bytes", "3"], "3: must be at least 6"),
        (["--target", "a/b", "--draft-head-rows", "0"], "0: must be at least"),
        (["--target", "a/b", "--generation", "qwen9"], "--generation"),
        (["--target", "a/b", "--framing", "v1"], "--framing"),
    ],
)
def test_usage_errors(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    status, out, err = call(capsys, *arguments)
    assert (status, out) == (2, "")
    assert message in err and err.count("\n") == 1


def test_a_bad_source_is_one_line(
    capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path
) -> None:
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "hidden_size": 256}))
    status, _, err = call(
        capsys, "--target", "me/groupwise-int", "--source", source, "-o", tmp_path / "out.ninfer"
    )
    assert status == 1 and err.count("\n") == 1
    assert err.startswith("ninfer: error: tensor 'model.language_model.embed_tokens.weight' in ")
