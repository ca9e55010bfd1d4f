"""Benchmarks run their check before their timing, and give every figure a reference."""

import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ninfer.artifact import open_artifact
from ninfer.bench import (
    BENCHMARKS,
    artifact,
    convert,
    engine_batch,
    engine_cpu,
    engine_prefix,
    engine_round,
    formats,
)
from ninfer.cli.bench import NAMES
from ninfer.engine.registered import full_directory
from ninfer.errors import ArtifactError, FormatError, GenerationError
from ninfer.formats import FORMATS, quantise


def test_formats_covers_every_packed_format():
    rows = formats.run(rows=128, columns=256, repeats=1)
    packed = [name for name, entry in FORMATS.items() if entry.kind != "direct"]
    assert [row.name for row in rows] == [
        "copy",
        *(f"{verb} {name}" for name in packed for verb in ("quantise", "decode")),
    ]
    for row in rows:
        assert row.value > 0 and row.reference > 0 and row.unit == "MB/s"
    assert rows[0].share == pytest.approx(1.0)


@pytest.mark.parametrize("name", [entry.name for entry in formats.packed_formats()])
def test_format_check_fails_on_a_wrong_matrix(name: str):
    source = torch.randn(128, 256).to(torch.bfloat16)
    packed = quantise(source, name)
    formats.check(source, packed, FORMATS[name])
    for wrong in (source.roll(1, dims=1), torch.full_like(source, math.nan)):
        with pytest.raises(FormatError, match=r"nothing was timed"):
            formats.check(wrong, packed, FORMATS[name])


def test_formats_are_not_timed_when_the_check_fails(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(formats, "error_bound", lambda entry: 0.0)
    timed = []
    monkeypatch.setattr(formats, "_timings", lambda *args: timed.append(args))
    with pytest.raises(FormatError):
        formats.run(rows=128, columns=256, repeats=1)
    assert timed == []


def test_full_directory_has_the_published_extent(tmp_path: Path):
    directory = full_directory(artifact.IDENTITY)
    path = tmp_path / "sparse.ninfer"
    artifact.write_sparse(path, directory)
    size = path.stat().st_size
    assert len(directory.entries) > 1000
    assert 16 * 2**30 < size < 19 * 2**30
    assert path.stat().st_blocks * 512 < 2**24, "the file is not sparse"
    with open_artifact(path) as opened:
        assert opened.directory == directory


def test_artifact_check_fails_on_another_directory(tmp_path: Path):
    directory = full_directory(artifact.IDENTITY)
    path = tmp_path / "sparse.ninfer"
    artifact.write_sparse(path, directory)
    shorter = type(directory)(directory.identity, directory.entries[:-1])
    with pytest.raises(ArtifactError, match="nothing was timed"):
        artifact.check(path, shorter)


def test_artifact_benchmark_gives_milliseconds_beside_a_parse():
    (row,) = artifact.run(repeats=1)
    assert row.unit == "ms" and row.value > 0
    assert row.reference_name == "JSON parse alone"
    assert row.shape["objects"] > 1000


def test_engine_benchmark_gives_a_rate_beside_its_roof():
    (row,) = engine_cpu.run(scale="micro", max_new=8, repeats=2)
    assert row.unit == "tok/s" and row.value > 0 and row.reference > 0
    assert row.low <= row.value <= row.high
    assert row.shape["parameters"] > 10_000


def test_engine_is_not_timed_when_the_seed_does_not_fix_the_tokens(
    monkeypatch: pytest.MonkeyPatch,
):
    honest, calls = engine_cpu.generate, []

    def drifting(engine, max_new: int, seed: int):
        calls.append(seed)
        return honest(engine, max_new, seed + len(calls))

    monkeypatch.setattr(engine_cpu, "generate", drifting)
    with pytest.raises(GenerationError, match="nothing was timed"):
        engine_cpu.run(scale="micro", max_new=8, repeats=1)
    assert len(calls) == 3


def test_conversion_benchmark_gives_a_rate_and_a_peak(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(convert, "_FILL_WORDS", 1 << 16)
    whole = convert.layer_sets()["27b layers"]
    small = replace(whole, text=replace(whole.text, hidden=128, mlp_width=256))
    rate, peak = convert.run(sets={"small": small}, repeats=1)
    assert (rate.unit, peak.unit) == ("MB/s", "MiB")
    assert rate.value > 0 and rate.reference_name == "file copy"
    assert 50 < peak.value < peak.reference == 8192


def test_conversion_is_not_timed_when_it_fails(tmp_path: Path):
    with pytest.raises(ArtifactError, match=r"nothing was timed: ninfer: error: .*config\.json"):
        (tmp_path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
        convert.convert_apart(tmp_path)


def test_command_line_offers_every_benchmark():
    assert sorted(NAMES) == sorted([*BENCHMARKS, "engine", "tune"])


def test_batches_are_timed_beside_one_sequence():
    rows = engine_batch.run(scale="micro", max_new=40, repeats=1)
    assert [row.shape["sequences"] for row in rows] == [1, 2, 4, 8]
    assert rows[0].share == pytest.approx(1.0)
    assert all(row.value > 0 and row.unit == "tok/s" for row in rows)


def test_batches_are_not_timed_when_company_changes_tokens(monkeypatch: pytest.MonkeyPatch):
    calls = []

    def results(engine: object, seeds: list[int], max_new: int) -> list[tuple[int, ...]]:
        calls.append(seeds)
        return [(len(calls),) for _ in seeds]

    monkeypatch.setattr(engine_batch, "_results", results)
    with pytest.raises(GenerationError, match="company changes the tokens"):
        engine_batch.run(scale="micro", max_new=40, repeats=1)


def test_a_conversation_is_counted_beside_its_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine_prefix, "TURNS", 4)
    rows = engine_prefix.run(activations=("fp32",))
    whole, exact, loose, answers, ids = rows
    assert whole.value == exact.value <= exact.reference < whole.reference
    assert loose.value < exact.value == loose.reference
    assert (answers.reference, answers.unit, ids.unit) == (4, "answers", "ids")


def test_nothing_is_counted_when_reuse_changes_a_token(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine_prefix, "TURNS", 2)
    honest = engine_prefix.repeat

    def other(engine: object, prompts: object, like: list[engine_prefix.Turn]):
        turns = honest(engine, prompts, like)
        return [replace(turns[0], ids=(*turns[0].ids[:-1], 0)), *turns[1:]]

    monkeypatch.setattr(engine_prefix, "repeat", other)
    with pytest.raises(GenerationError, match="prefix reuse changes the tokens"):
        engine_prefix.run(activations=("fp32",))


def test_a_round_is_timed_without_the_model(monkeypatch: pytest.MonkeyPatch):
    """What is left out is slow here, and must not be in the figure."""
    monkeypatch.setattr(engine_round, "COUNTS", (2,))
    honest = engine_round.ModelRunner.run

    def slow(self: object, *args: object) -> object:
        time.sleep(0.05)
        return honest(self, *args)

    monkeypatch.setattr(engine_round.ModelRunner, "run", slow)
    rows = engine_round.run(scale="micro", rounds=4, repeats=1)
    assert [row.name for row in rows] == [
        f"{way}, {kind}" for way in ("host", "round") for kind in ("greedy", "sampled", "penalised")
    ]
    assert all(0 < row.value < 10_000 for row in rows), rows
    assert {(row.unit, row.reference) for row in rows} == {("us/sequence", 50.0)}
