"""Container v3 and v1: published vectors, part files, what opening reads, failing writes."""

import errno
import hashlib
import json
from pathlib import Path

import artifact_files as files
import artifact_v3_files as v3
import pytest
import torch

from ninfer.artifact import (
    ArtifactWriter,
    Component,
    FileSpan,
    Identity,
    ModelMap,
    Part,
    ResourceSpec,
    TensorSpec,
    describe,
    open_artifact,
    read_header,
    write_artifact,
)
from ninfer.artifact.directory_v3 import encode_directory_v3, parse_directory_v3
from ninfer.artifact.file_plan import payload_bytes_of, plan_v3
from ninfer.artifact.writer import plan_directory
from ninfer.errors import ArtifactError, FramingError, UsageError
from ninfer.formats import dequantise, quantise

PACKED = ["Q4G64_F16S", "Q5G64_F16S", "Q6G64_F16S", "W8G32_F16S", "NVFP4", "FP8_E4M3FN_ROW_BF16S"]
VECTOR_MAP = ModelMap(
    {"text": Component({"architectures": ["Qwen3_5ForCausalLM"]}, None, {"tokenizer": "a"})},
    {"text/token_embedding": (Part("b"),)},
)
NAMED = ModelMap({"text": Component({})}, {}, metadata={"name": "m", "weights_id": "w"})
WORDS = torch.tensor([[1, -2], [0.5, 3]]).bfloat16()


def objects() -> list[tuple[str, object]]:
    torch.manual_seed(3)
    return [
        ("tokenizer", b"{}" * 1500),
        *[(name, quantise(torch.randn(128, 192), name)) for name in PACKED],
        ("norm", torch.randn(100)),
        ("scalar", torch.tensor(0.75)),
        ("last", b"x" * 777),
    ]


def same_objects(path: Path) -> None:
    with open_artifact(path) as artifact:
        for name, value in objects():
            if isinstance(value, bytes):
                assert artifact.resource(name) == value
            elif isinstance(value, torch.Tensor):
                assert torch.equal(artifact.tensor(name), value)
            else:
                artifact.verify_payload(name)
                assert torch.equal(dequantise(artifact.tensor(name)), dequantise(value))


def test_published_v3_vector(tmp_path):
    path = tmp_path / "a.ninfer"
    write_artifact(path, VECTOR_MAP, [("a", b"abc"), ("b", WORDS)], artifact_id=v3.ID)
    data = path.read_bytes()
    assert data[:32].hex() == "4e494e46455200039601000000000000000102030405060708090a0b0c0d0e0f"
    digest = "326b17c6206397c276eea8b887dd3c7c6bacdf985441bae3f6535cf629e3c380"
    assert (len(data), hashlib.sha256(data).hexdigest()) == (4360, digest)
    assert data == v3.frame(files.compact(v3.SMALL))
    with open_artifact(path) as artifact:
        assert (artifact.framing, artifact.artifact_id) == (3, v3.ID)
        assert artifact.identity == Identity("unnamed", "")
        assert artifact.directory.model_map == VECTOR_MAP
        assert artifact.files == (FileSpan(None, 264),)
        assert artifact.resource("a") == b"abc"
        assert torch.equal(artifact.tensor("b"), WORDS)
        assert artifact.entry("b").format == "BF16"


def test_published_v1_vector(tmp_path):
    root = {"model_id": "m", "objects": files.SMALL["objects"]}
    data = files.frame(files.compact(root), magic=b"NINFER\x00\x01")
    digest = "7260d0eb2d377925d83a2c5471f1c8027970526e41947a1a908c2c216324e23e"
    assert (len(data), hashlib.sha256(data).hexdigest()) == (4360, digest)
    path = tmp_path / "a.ninfer"
    path.write_bytes(data)
    with open_artifact(path) as artifact:
        assert (artifact.framing, artifact.artifact_id) == (1, b"")
        assert artifact.identity == Identity("m", "groupwise-int")
        assert artifact.directory.model_map is None
        assert artifact.resource("frontend/a.txt") == b"abc"
        assert torch.equal(artifact.tensor("text/w"), WORDS)


def test_directory_text_round_trip():
    text = files.compact(v3.SMALL)
    assert encode_directory_v3(parse_directory_v3(text)) == text
    every = v3.root(
        components={
            "text": {"config": {"a": [1, {"b": None}]}, "proposal": {"domain": "full"}},
            "mtp": {"config": {}, "target": "text"},
            "audio": {"config": {}, "resources": {"filters": "a"}},
        },
        bindings={
            "text/x": {"parts": [{"object": "b", "range": [2, 4]},
                                 {"object": "b", "range": [0, 2]}]},
            "audio/é": {"object": "b"},
        },
        uses=[
            {"parameter": "text/x", "input": "i", "activation_policy": "AllowA4",
             "auxiliaries": {"other": {"object": "b"}}},
            {"parameter": "text/x", "input": "j", "activation_policy": "A16Only",
             "auxiliaries": {}},
        ],
        metadata={"name": "n"},
        provenance={"tool": "t", "version": 1.5},
    )  # fmt: skip
    text = files.compact(every).decode().encode().replace(b"\\u00e9", "é".encode())
    directory = parse_directory_v3(text)
    assert encode_directory_v3(directory) == text
    assert directory.identity == Identity("n", "")
    assert directory.model_map.bindings["text/x"] == (Part("b", (2, 4)), Part("b", (0, 2)))


@pytest.mark.parametrize("limit", [8192, 12_288, 13_000, 20_480, 40_000, 65_536, 1 << 30])
def test_part_files_up_to_a_limit(tmp_path, limit):
    path = tmp_path / "a.ninfer"
    write_artifact(path, NAMED, objects(), file_limit=limit)
    header = read_header(path)
    names = [f"a.ninfer.part-{i:04}" for i in range(1, len(header.files))]
    assert [span.path for span in header.files] == [None, *names]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.ninfer", *names]
    assert all(p.stat().st_size <= limit for p in tmp_path.iterdir())
    assert all(span.payload_bytes % 4096 == 0 for span in header.files[:-1])
    assert sum(span.payload_bytes for span in header.files) == payload_bytes_of(header.directory)
    assert (len(header.files) > 10) == (limit < 13_001)
    same_objects(path)


@pytest.mark.parametrize("step", [1, 997, 4096, 5000, 17_408])
def test_part_files_of_odd_sizes(tmp_path, step):
    """Objects straddle two, three and more files, and lie unaligned in one."""
    whole = tmp_path / "whole.ninfer"
    write_artifact(whole, NAMED, objects())
    total = payload_bytes_of(read_header(whole).directory)
    count = min(total // step, 40)
    v3.write_cut(tmp_path / "cut.ninfer", whole, [step] * count)
    assert len(read_header(tmp_path / "cut.ninfer").files) == count + 1
    same_objects(tmp_path / "cut.ninfer")


def test_an_entry_file_without_payload(tmp_path):
    write_artifact(tmp_path / "whole.ninfer", NAMED, objects())
    v3.write_cut(tmp_path / "cut.ninfer", tmp_path / "whole.ninfer", [0, 3000])
    same_objects(tmp_path / "cut.ninfer")


def test_views_where_an_object_lies_in_one_file(tmp_path):
    whole = tmp_path / "whole.ninfer"
    write_artifact(whole, NAMED, [("a", torch.ones(64)), ("b", torch.ones(64))])
    v3.write_cut(tmp_path / "cut.ninfer", whole, [256 + 8])
    with open_artifact(tmp_path / "cut.ninfer") as artifact:
        assert artifact.tensor("a").data_ptr() == artifact.tensor("a").data_ptr()
        assert artifact.tensor("b").data_ptr() != artifact.tensor("b").data_ptr()


def cut_in_three(tmp_path: Path) -> list[Path]:
    write_artifact(tmp_path / "whole.ninfer", NAMED, [("a", bytes(100)), ("b", bytes(100))])
    return v3.write_cut(tmp_path / "cut.ninfer", tmp_path / "whole.ninfer", [90, 60])


def test_parts_are_opened_only_when_needed(tmp_path):
    paths = cut_in_three(tmp_path)
    paths[2].unlink()
    with open_artifact(paths[0]) as artifact:
        assert artifact.resource("a") == bytes(100)
        with pytest.raises(ArtifactError, match=r"part number 2: no such file; it is part 2 of"):
            artifact.resource("b")


def test_a_part_of_another_artifact_is_refused(tmp_path):
    paths = cut_in_three(tmp_path)
    good = paths[1].read_bytes()
    wrong = {
        r"part number 1: is not a part of a v3 artifact: it begins with 4e494e46": (
            b"NINFER\x00\x03" + good[8:]
        ),
        r"part number 1: says it is part 2; the entry file has it as part 1": (
            good[:8] + (2).to_bytes(8, "little") + good[16:]
        ),
        r"part number 1: belongs to artifact 0{32}, the entry file is": (
            good[:16] + bytes(16) + good[32:]
        ),
        r"part number 1: has 4155 bytes, its entry file says 4156; fetch it again": good[:-1],
        r"part number 1: has 4157 bytes": good + b"\0",
        r"part number 1: is not a part of a v3 artifact: it begins with $": b"",
    }
    for message, data in wrong.items():
        paths[1].write_bytes(data)
        with open_artifact(paths[0]) as artifact, pytest.raises(FramingError, match=message):
            artifact.resource("a")
    paths[1].unlink()
    paths[1].mkdir()
    with open_artifact(paths[0]) as artifact, pytest.raises(ArtifactError, match="is a directory"):
        artifact.resource("a")


@pytest.mark.parametrize("change", [-1, 1])
def test_the_entry_file_has_an_exact_size(tmp_path, change):
    path = tmp_path / "a.ninfer"
    data = v3.frame(files.compact(v3.SMALL))
    path.write_bytes(data[:-1] if change < 0 else data + b"\0")
    with pytest.raises(FramingError, match=f"holds {264 + change} payload bytes, its directory"):
        open_artifact(path)


def test_blanks_behind_the_directory_belong_to_it(tmp_path):
    path = tmp_path / "a.ninfer"
    path.write_bytes(v3.frame(files.compact(v3.SMALL) + b" " * 5000))
    with open_artifact(path) as artifact:
        assert artifact.payload_offset == 8192
        assert artifact.resource("a") == b"abc"


def test_limits_that_hold_no_directory(tmp_path):
    for limit in (100, 4096, 8191):
        with pytest.raises(UsageError, match=f"a limit of {limit} bytes a file is too small"):
            write_artifact(tmp_path / "a.ninfer", NAMED, objects(), file_limit=limit)
    assert list(tmp_path.iterdir()) == []


def test_text_and_spans_settle_at_every_limit():
    """The list of files is part of the text whose length decides how much each file holds."""
    directory = plan_directory(NAMED, [ResourceSpec(f"r{i}", 40_000) for i in range(60)])
    name = "n" * 40
    for limit in range(40_000, 90_000, 1111):
        plan = plan_v3(directory, name, file_limit=limit)
        sizes = [len(file.head) + file.payload_bytes for file in plan.files]
        assert max(sizes) <= limit
        assert sum(file.payload_bytes for file in plan.files) == 2_400_000
        assert len(plan.directory.files) == len(plan.files)
        assert plan.files[0].head[:8] == b"NINFER\x00\x03"


def test_blanks_keep_the_start_when_a_later_start_makes_the_text_shorter():
    """One page less in the entry file can be a digit less in the text, which then fits before."""
    filler = ModelMap({"text": Component({})}, {}, metadata={"name": "m" * 3796})
    plan = plan_v3(plan_directory(filler, [ResourceSpec("r", 140_000)]), "n", file_limit=106_496)
    length = int.from_bytes(plan.files[0].head[8:16], "little")
    assert plan.files[0].head[32 : 32 + length].endswith(b"} ")
    assert len(plan.files[0].head) == 8192
    assert len(plan.files[0].head) + plan.files[0].payload_bytes <= 106_496


SPECS = [ResourceSpec("r", 9000), TensorSpec("t", (2, 3), "FP32")]


def test_an_exception_removes_all_temporary_files(tmp_path):
    path = tmp_path / "a.ninfer"
    path.write_bytes(b"old")
    with (
        pytest.raises(KeyboardInterrupt),
        ArtifactWriter(path, NAMED, SPECS, file_limit=8192) as writer,
    ):
        writer.write_resource("r", bytes(9000))
        assert len(list(tmp_path.iterdir())) > 2
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.ninfer"]


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_the_entry_file_is_renamed_last(tmp_path, monkeypatch, failing):
    path = tmp_path / "a.ninfer"
    path.write_bytes(b"old")
    calls = []
    original = Path.replace

    def replace(self, target):
        calls.append(Path(target).name)
        if len(calls) == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with (
        pytest.raises(ArtifactError, match=r"a\.ninfer: cannot be written: No space left"),
        ArtifactWriter(path, NAMED, SPECS, file_limit=8192) as writer,
    ):
        writer.write_resource("r", bytes(9000))
        writer.write_tensor("t", torch.zeros(2, 3))
    assert calls == ["a.ninfer.part-0001", "a.ninfer.part-0002", "a.ninfer"][:failing]
    assert path.read_bytes() == b"old"
    assert not [p.name for p in tmp_path.iterdir() if p.name.endswith(".partial")]


def test_describe_shows_the_model_map(tmp_path):
    path = tmp_path / "a.ninfer"
    components = {
        "text": Component({}, None, {"tokenizer": "r"}),
        "mtp": Component({}, "text"),
    }
    model_map = ModelMap(components, {"text/a": (Part("t"),)}, metadata={"name": "m"})
    write_artifact(path, model_map, [("r", bytes(9000)), ("t", torch.zeros(2, 3))], file_limit=8192)
    with open_artifact(path) as artifact:
        summary = describe(artifact)
    assert summary == describe(read_header(path))
    lines = summary.lines()
    for line in (
        "framing   v3",
        "identity  m",
        "part      a.ninfer.part-0001, 4,096 payload bytes",
        "bindings  1 parameters, 0 uses",
        "component text: 1 resources",
        "component mtp: for text",
    ):
        assert line in lines
    data = json.loads(json.dumps(summary.as_dict()))
    assert data["framing"] == 3
    assert data["files"][1] == {"path": "a.ninfer.part-0001", "payload_bytes": 4096}
    assert data["components"]["mtp"] == {"target": "text", "resources": {}}
    assert (data["bindings"], data["uses"]) == (1, 0)
