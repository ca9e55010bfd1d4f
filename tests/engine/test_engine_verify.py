"""`ninfer verify`: sound files pass, and each kind of damage is found and named."""

import hashlib
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from ninfer.artifact import open_artifact, published
from ninfer.artifact.file_plan import FILE_LIMIT
from ninfer.artifact.migrate import migrate_to_v3
from ninfer.artifact.options import VerifyOptions
from ninfer.artifact.published import PUBLISHED
from ninfer.artifact.verify import BLOCK_ROWS, Finding, check_samples
from ninfer.cli import main
from ninfer.convert import synthesise
from ninfer.convert.synthetic_model import synthetic_model
from ninfer.engine.verify import verify
from ninfer.models.qwen3_6.model_map import model_map_of

MICRO = ("qwen3.6-27b/nvfp4", "micro")
QUERY_KEY = "text/layers/3/attention/query_key"
DIVISOR = "text/layers/0/mlp/down_projection/input_scale_divisor"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("sound")
    found = {}
    for like in ("qwen3.6-27b", "qwen3.6-27b/nvfp4", "qwen3.8-27b/nvfp4", "qwen3.6-35b-a3b"):
        path = folder / "a.ninfer"
        synthesise(path, like=like, scale="micro")
        found[like] = path.read_bytes()
    return found


def findings(path: Path, rows: int = 512) -> list[Finding]:
    return list(verify(path, VerifyOptions(sample_rows=rows), lambda *_: None))


def damaged(path: Path, data: bytes, name: str, at: int, words: bytes) -> None:
    """Write `data` to `path` with the bytes `words` at offset `at` of an object (< 0: its end)."""
    path.write_bytes(data)
    with open_artifact(path) as artifact:
        entry = artifact.entry(name)
        start = artifact.payload_offset + entry.offset + (at if at >= 0 else entry.bytes + at)
    changed = bytearray(data)
    changed[start : start + len(words)] = words
    path.write_bytes(changed)


@pytest.mark.parametrize(
    "like", ["qwen3.6-27b", "qwen3.6-27b/nvfp4", "qwen3.8-27b/nvfp4", "qwen3.6-35b-a3b"]
)
@pytest.mark.parametrize("rows", [0, 1, 512])
def test_a_sound_file(files: dict[str, bytes], tmp_path: Path, like: str, rows: int) -> None:
    path = tmp_path / "a.ninfer"
    path.write_bytes(files[like])
    found = findings(path, rows)
    assert [(f.verdict, f.check) for f in found] == [
        ("ok", "structure"),
        ("ok", "model"),
        ("ok", "payload"),
        ("note", "hash"),
    ]


@pytest.mark.parametrize(
    ("like", "name", "at", "words", "check", "message"),
    [
        ("qwen3.6-27b", QUERY_KEY, -2, b"\x00\x7e", "payload", "query_key rows 640:768: scale"),
        ("qwen3.6-27b", "mtp/input_projection", 0, b"\x80", "payload", "code [0, 0] is -128"),
        ("qwen3.6-27b", "text/final_norm", 0, b"\xc0\x7f", "payload", "holds nan; weights must"),
        ("qwen3.6-27b", "text/layers/0/gdn/a_log", 0, b"\0\0\x80\x7f", "payload", "holds inf"),
        ("qwen3.6-27b", "text/draft_head_token_ids", 0, b"\xff" * 4, "model", "holds id -1"),
        ("qwen3.6-27b", "frontend/tokenizer.json", 0, b"[", "model", "has SHA-256"),
        ("qwen3.6-27b/nvfp4", DIVISOR, 0, struct.pack("<f", 0.0), "model", "is 0.0; it must be"),
        ("qwen3.6-27b/nvfp4", DIVISOR, 0, struct.pack("<f", -1.0), "model", "is -1.0; it must"),
        ("qwen3.6-27b/nvfp4", DIVISOR, 0, b"\0\0\x80\x7f", "model", "is inf; it must be finite"),
        ("qwen3.6-27b/nvfp4", DIVISOR, 0, b"\0\0\xc0\x7f", "model", "is nan; it must be finite"),
        ("qwen3.6-27b/nvfp4", "text/layers/0/mlp/down", -4, b"\0" * 4, "payload", "divisor is 0.0"),
        ("qwen3.6-27b/nvfp4", "text/layers/0/mlp/down", -5, b"\x7f", "payload", "block scale"),
        ("qwen3.8-27b/nvfp4", "text/output_head", 0, b"\x7f", "payload", "code [0, 0] is NaN"),
    ],
)
def test_damage_is_named(
    files: dict[str, bytes],
    tmp_path: Path,
    like: str,
    name: str,
    at: int,
    words: bytes,
    check: str,
    message: str,
) -> None:
    path = tmp_path / "a.ninfer"
    damaged(path, files[like], name, at, words)
    bad = [finding for finding in findings(path, rows=0) if finding.verdict == "bad"]
    assert {finding.check for finding in bad} >= {check}
    assert any(message in finding.text for finding in bad), bad


def test_a_cut_file_has_one_finding(files: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "a.ninfer"
    path.write_bytes(files["qwen3.6-27b"][:-1])
    (finding,) = findings(path)
    assert finding.verdict == "bad" and "the file is cut short" in finding.text


def test_a_missing_object_does_not_stop_the_other_checks(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    path = tmp_path / "a.ninfer"
    data = files["qwen3.6-27b"]
    path.write_bytes(data.replace(b"text/layers/0/mlp/down", b"text/layers/0/mlp/dowm", 1))
    found = findings(path)
    assert [(f.verdict, f.check) for f in found] == [
        ("ok", "structure"),
        ("bad", "model"),
        ("ok", "payload"),
        ("note", "hash"),
    ]
    assert "mlp/down' is missing" in found[1].text


def test_a_published_file_is_recognised_by_its_hash(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.ninfer"
    data = files["qwen3.6-27b"]
    path.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    twins = tuple(
        replace(PUBLISHED[0], bytes=len(data), framing=framing, sha256=sha)
        for framing, sha in ((1, "0" * 64), (2, digest))
    )
    monkeypatch.setattr(published, "PUBLISHED", twins)
    assert findings(path)[-1].text == (
        "SHA-256 is that of the published qwen3.6-27b/groupwise-int (framing v2)"
    )
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    last = findings(path)[-1]
    assert last.verdict == "bad"
    assert "(framing v1) or qwen3.6-27b/groupwise-int (framing v2), but the SHA" in last.text


def test_samples_hold_both_ends_and_depend_on_the_seed(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ninfer.formats import GroupedMatrix

    path = tmp_path / "a.ninfer"
    path.write_bytes(files["qwen3.6-35b-a3b"])
    seen: list[str] = []
    monkeypatch.setattr(GroupedMatrix, "validate", lambda self, name: seen.append(name))

    def blocks(seed: int, rows: int) -> list[str]:
        seen.clear()
        with open_artifact(path) as artifact:
            list(check_samples(artifact, lambda *_: None, rows=rows, seed=seed))
        return [name.split()[-1] for name in seen if name.startswith("text/layers/0/moe/routed_g")]

    ends = ["0:128", "896:1024"]
    assert blocks(0, 1) == ends
    assert blocks(0, 4 * BLOCK_ROWS) == blocks(0, 4 * BLOCK_ROWS)
    chosen = {tuple(blocks(seed, 4 * BLOCK_ROWS)) for seed in range(8)}
    assert len(chosen) > 1
    assert all(len(c) == 4 and [c[0], c[-1]] == ends for c in chosen)
    assert len(blocks(0, 0)) == 8


def test_the_command(
    files: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.ninfer"
    path.write_bytes(files["qwen3.6-27b"])
    assert main(["verify", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "ok    structure",
        "ok    model",
        "ok    payload",
        "note  hash",
    ]
    damaged(path, files["qwen3.6-27b"], "text/final_norm", 0, b"\xc0\x7f")
    assert main(["verify", str(path)]) == 1
    assert "bad   payload: text/final_norm rows 0:128: holds nan" in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "none")]) == 1
    assert main(["verify", str(path), "--sample-rows", "-1"]) == 2


@pytest.mark.parametrize("limit", [FILE_LIMIT, 300_000], ids=["one file", "parts"])
def test_container_v3(files: dict[str, bytes], tmp_path: Path, limit: int) -> None:
    source, path = tmp_path / "v2.ninfer", tmp_path / "v3.ninfer"
    for words, verdict in ((None, "ok"), (b"\0" * 4, "bad")):
        if words is None:
            source.write_bytes(files["qwen3.6-27b/nvfp4"])
        else:
            damaged(source, files["qwen3.6-27b/nvfp4"], DIVISOR, 0, words)
        with open_artifact(source) as artifact:
            model_map = model_map_of(artifact.directory, synthetic_model(*MICRO).config)
            migrate_to_v3(artifact, path, model_map, file_limit=limit)
        found = findings(path)
        assert [(f.verdict, f.check) for f in found] == [
            ("ok", "structure"),
            (verdict, "model"),
            ("ok", "payload"),
            ("note", "hash"),
        ]
        assert found[0].text.startswith("framing v3, ")
    assert f"{DIVISOR} is 0.0; it must be finite" in found[1].text


def test_loading_refuses_a_bad_divisor(
    files: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.ninfer"
    damaged(path, files["qwen3.6-27b/nvfp4"], DIVISOR, 0, struct.pack("<f", -1.0))
    assert main(["run", str(path), "--prompt", "x", "--device", "cpu", "--max-new", "1"]) == 1
    assert f"{DIVISOR} is -1.0; it must be finite" in capsys.readouterr().err


@pytest.mark.parametrize("like", ["qwen3.6-27b/nvfp4", "qwen3.8-27b/nvfp4"])
def test_nvfp4_and_fp8_models_generate(
    files: dict[str, bytes], tmp_path: Path, like: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.ninfer"
    path.write_bytes(files[like])
    arguments = ["run", str(path), "--prompt", "hi", "--device", "cpu", "--max-new", "4"]
    assert main([*arguments, "--greedy", "--max-context", "128"]) == 0
    assert "4 generated" in capsys.readouterr().err
