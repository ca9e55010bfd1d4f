"""Conversions that are stopped, killed or damaged halfway, and what the next run does."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from checkpoints import Made

from ninfer.artifact.file_plan import plan_v2
from ninfer.convert import ConvertOptions, convert
from ninfer.convert.partial_file import PartialArtifact
from ninfer.convert.plan import plan_conversion
from ninfer.errors import ArtifactError, NInferError

# Ends the process, without any clean-up, when so many bytes of the artifact were written; the
# write that passes the limit is done in part.
KILLED = """
import os, signal, sys
limit, written, honest = int(sys.argv[1]), 0, os.pwrite
def pwrite(file, data, offset):
    global written
    part = memoryview(data)[: max(limit - written, 0)]
    written += honest(file, part, offset) if part else 0
    if written >= limit:
        os.kill(os.getpid(), signal.SIGKILL)
    return len(part)
os.pwrite = pwrite
from ninfer.cli import main
sys.exit(main(sys.argv[2:]))
"""


class Stopped(Exception):
    """Raised by a progress function in place of a kill."""


def paths(output: Path) -> tuple[Path, Path]:
    return output.with_name(f"{output.name}.partial"), output.with_name(
        f"{output.name}.partial.journal"
    )


def arguments(options: ConvertOptions) -> list[str]:
    return [
        "convert",
        *("--target", str(options.target), "--source", str(options.source)),
        *("--draft-counts", str(options.draft_counts)),
        *("--draft-head-rows", str(options.draft_head_rows), "-o", str(options.output)),
    ]


def stop_after(options: ConvertOptions, objects: int) -> None:
    """Run until so many objects are finished."""
    seen: list[str] = []

    def progress(name: str, done: int, total: int) -> None:
        if name not in seen:
            seen.append(name)
        if len(seen) > objects:
            raise Stopped

    with pytest.raises(Stopped):
        convert(options, progress)


def kill_at(options: ConvertOptions, written: int) -> None:
    """Convert in a process that kills itself after so many bytes."""
    command = [sys.executable, "-c", KILLED, str(written), *arguments(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_runs_end_in_the_same_bytes(dense: Made, tmp_path: Path, seed: int) -> None:
    """Two kills, then a run to the end."""
    _killed_runs(dense, tmp_path, random.Random(seed), kills=2)


@pytest.mark.soak
def test_killed_runs_end_in_the_same_bytes_in_full(
    dense: Made, sparse: Made, tmp_path: Path, record_property
) -> None:
    count = 40
    for seed in range(count):
        folder = tmp_path / str(seed)
        folder.mkdir()
        _killed_runs((dense, sparse)[seed % 2], folder, random.Random(seed), kills=3)
    record_property("count", 3 * count)
    record_property("unit", "conversions killed at a random byte and resumed")


def _killed_runs(made: Made, folder: Path, chance: random.Random, kills: int) -> None:
    output = folder / "out.ninfer"
    options = replace(made.options, output=output)
    whole = made.artifact.read_bytes()
    for _ in range(kills):
        kill_at(options, chance.randrange(1, len(whole) // kills))
        assert not output.exists()
    convert(options)
    assert output.read_bytes() == whole
    assert sorted(path.name for path in folder.iterdir()) == ["out.ninfer"]


def test_a_kill_from_outside_is_resumed(dense: Made, tmp_path: Path) -> None:
    options = replace(dense.options, output=tmp_path / "out.ninfer")
    journal = paths(tmp_path / "out.ninfer")[1]
    command = [sys.executable, "-m", "ninfer", *arguments(options)]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    while not journal.exists() and process.poll() is None:
        time.sleep(0.001)
    process.kill()
    process.wait()
    convert(options)
    assert (tmp_path / "out.ninfer").read_bytes() == dense.artifact.read_bytes()


def test_finished_objects_are_not_made_again(
    dense: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(dense.options, output=tmp_path / "out.ninfer")
    stop_after(options, 40)
    from ninfer.convert.partial_file import PartialArtifact as Partial

    made: list[str] = []
    honest = Partial.finish
    monkeypatch.setattr(Partial, "finish", lambda s, e: (made.append(e.name), honest(s, e)))
    done = convert(options)
    assert done.resumed >= 40
    assert len(made) == done.objects - done.resumed
    assert (tmp_path / "out.ninfer").read_bytes() == dense.artifact.read_bytes()


def test_what_the_journal_promises_is_read_again(dense: Made, tmp_path: Path) -> None:
    output = tmp_path / "out.ninfer"
    options = replace(dense.options, output=output)
    stop_after(options, 40)
    partial, _ = paths(output)
    plan = plan_conversion(options)
    entry = plan.directory.entries[20]
    place = len(dense.artifact.read_bytes()) - plan.directory.entries[-1].bytes
    place += entry.offset - plan.directory.entries[-1].offset
    data = bytearray(partial.read_bytes())
    assert (
        data[place : place + entry.bytes]
        == dense.artifact.read_bytes()[place : place + entry.bytes]
    )
    data[place] ^= 1
    partial.write_bytes(data)
    assert convert(options).resumed == 20
    assert output.read_bytes() == dense.artifact.read_bytes()


@pytest.mark.parametrize("damage", ["torn", "garbage", "empty", "no file", "short file"])
def test_damaged_leftovers_are_not_trusted(dense: Made, tmp_path: Path, damage: str) -> None:
    output = tmp_path / "out.ninfer"
    options = replace(dense.options, output=output)
    stop_after(options, 30)
    partial, journal = paths(output)
    text = journal.read_bytes()
    match damage:
        case "torn":
            journal.write_bytes(text[:-20])
        case "garbage":
            lines = text.splitlines(keepends=True)
            journal.write_bytes(b"".join([*lines[:10], b"\xff{]\n", *lines[10:]]))
        case "empty":
            journal.write_bytes(b"")
        case "no file":
            partial.unlink()
        case "short file":
            os.truncate(partial, 300_000)
    convert(options)
    assert output.read_bytes() == dense.artifact.read_bytes()


def test_leftovers_of_another_conversion_are_kept(dense: Made, tmp_path: Path) -> None:
    output = tmp_path / "out.ninfer"
    options = replace(dense.options, output=output)
    stop_after(options, 10)
    partial, journal = paths(output)
    before = partial.read_bytes(), journal.read_bytes()
    with pytest.raises(ArtifactError, match=r"part of another conversion.*delete it"):
        convert(replace(options, draft_head_rows=128))
    assert (partial.read_bytes(), journal.read_bytes()) == before
    shard = next(dense.folder.glob("*.safetensors"))
    times = shard.stat().st_atime_ns, shard.stat().st_mtime_ns
    os.utime(shard, ns=(1, 1))
    with pytest.raises(ArtifactError, match="another conversion"):
        convert(options)
    os.utime(shard, ns=times)


def test_two_conversions_to_one_file_are_refused(dense: Made, tmp_path: Path) -> None:
    options = replace(dense.options, output=tmp_path / "out.ninfer")
    plan = plan_conversion(options)
    with (
        PartialArtifact(tmp_path / "out.ninfer", plan_v2(plan.directory), "another"),
        pytest.raises(ArtifactError, match="another conversion is writing it"),
    ):
        convert(options)


def test_a_file_before_stays_until_the_new_one_is_whole(dense: Made, tmp_path: Path) -> None:
    output = tmp_path / "out.ninfer"
    output.write_bytes(b"before")
    options = replace(dense.options, output=output)
    stop_after(options, 50)
    assert output.read_bytes() == b"before"
    convert(options)
    assert output.read_bytes() == dense.artifact.read_bytes()


def test_damage_after_writing_is_found_before_the_file_gets_its_name(
    dense: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.ninfer"
    honest = PartialArtifact.finish

    def finish(self: PartialArtifact, entry) -> None:
        if entry.name == "text/layers/2/mlp/down":
            place = len(self._head) + entry.offset
            os.pwrite(self._file, bytes([os.pread(self._file, 1, place)[0] ^ 0x77]), place)
        honest(self, entry)

    monkeypatch.setattr(PartialArtifact, "finish", finish)
    with pytest.raises(NInferError, match="'text/layers/2/mlp/down' does not hold"):
        convert(replace(dense.options, output=output))
    assert not output.exists()


def test_a_full_disk_is_refused_before_writing(
    dense: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1 << 30, 1 << 30, 1000))
    with pytest.raises(ArtifactError, match="1,000 free"):
        convert(replace(dense.options, output=tmp_path / "out.ninfer"))
    assert not (tmp_path / "out.ninfer").exists()


def test_a_disk_that_fills_up_names_the_file_and_can_be_resumed(
    dense: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(dense.options, output=tmp_path / "out.ninfer")
    honest, left = os.pwrite, [600_000]

    def pwrite(file: int, data, offset: int) -> int:
        left[0] -= len(data)
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return honest(file, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(ArtifactError, match=r"out\.ninfer: cannot be written: No space left"):
        convert(options)
    monkeypatch.setattr(os, "pwrite", honest)
    assert convert(options).resumed > 10
    assert (tmp_path / "out.ninfer").read_bytes() == dense.artifact.read_bytes()


def test_the_journal_names_objects_and_digests(dense: Made, tmp_path: Path) -> None:
    options = replace(dense.options, output=tmp_path / "out.ninfer")
    stop_after(options, 12)
    lines = paths(tmp_path / "out.ninfer")[1].read_text().splitlines()
    first, *others = map(json.loads, lines)
    assert set(first) == {"conversion"}
    names = [entry.name for entry in plan_conversion(options).directory.entries]
    assert [line["name"] for line in others] == names[: len(others)]
    assert all(len(line["sha256"]) == 64 for line in others)
