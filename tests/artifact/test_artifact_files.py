"""Whole artifacts read and written: the published vector, all formats, failing writes."""

import errno
import gc
import hashlib
import json
import os
import struct
import time

import artifact_files as files
import pytest
import torch

from ninfer.artifact import (
    ArtifactWriter,
    Identity,
    ResourceSpec,
    TensorSpec,
    describe,
    open_artifact,
    plan_directory,
    read_header,
    write_artifact,
)
from ninfer.artifact.directory import encode_directory, parse_directory
from ninfer.errors import ArtifactError, DirectoryError, InventoryError, PayloadError
from ninfer.formats import Nvfp4Matrix, dequantise, quantise

PACKED = ["Q4G64_F16S", "Q5G64_F16S", "Q6G64_F16S", "W8G32_F16S", "NVFP4", "FP8_E4M3FN_ROW_BF16S"]
IDENTITY = Identity("m", "w")
SMALL_OBJECTS = [
    ("frontend/a.txt", b"abc"),
    ("text/w", torch.tensor([[1, -2], [0.5, 3]]).bfloat16()),
]


def leftovers(folder) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_published_file_vector(tmp_path):
    path = tmp_path / "a.ninfer"
    write_artifact(path, IDENTITY, SMALL_OBJECTS)
    data = path.read_bytes()
    assert data[:16].hex() == "4e494e46455200020801000000000000"
    assert data[4352:].hex() == "803f00c0003f4040"
    digest = "603b83616bbc3d29e4a86325931f04b542e81db7162b1e50bfbda68421c1b22c"
    assert (len(data), hashlib.sha256(data).hexdigest()) == (4360, digest)
    assert data == files.frame(files.compact(files.SMALL))
    with open_artifact(path) as artifact:
        assert artifact.identity == IDENTITY
        assert artifact.names == ("frontend/a.txt", "text/w")
        assert (artifact.path, artifact.payload_offset, artifact.file_size) == (path, 4096, 4360)
        assert artifact.resource("frontend/a.txt") == b"abc"
        assert artifact.tensor("text/w").tolist() == [[1, -2], [0.5, 3]]
        assert artifact.directory == read_header(path).directory
    assert leftovers(tmp_path) == ["a.ninfer"]


SOURCES = {
    "random": lambda n, k: torch.randn(n, k),
    "subnormal": lambda n, k: torch.randn(n, k) * 2.0**-130,
    "huge": lambda n, k: torch.randn(n, k).clamp(-4, 4) * 1e5,
    "alternating": lambda n, k: (torch.arange(n * k) % 2 * 2.0 - 1).view(n, k),
    "outlier": lambda n, k: torch.ones(n, k).index_fill(1, torch.tensor([k // 2]), 3e4),
    "zero": lambda n, k: torch.zeros(n, k),
    "minus zero": lambda n, k: torch.zeros(n, k).neg(),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("format", PACKED)
def test_packed_matrices_survive_the_file(tmp_path, format, source):
    width = 192 if format == "NVFP4" else 197
    matrix = SOURCES[source](128, width)
    stored = quantise(matrix, format)
    path = tmp_path / "a.ninfer"
    write_artifact(path, IDENTITY, [("a", b"x"), ("text/w", stored), ("b", b"yz")])
    with open_artifact(path) as artifact:
        found = artifact.tensor("text/w")
        artifact.verify_payload("text/w")
        assert artifact.resource("b") == b"yz"
    assert (found.format, found.shape) == (format, (128, width))
    assert dequantise(found).numpy().tobytes() == dequantise(stored).numpy().tobytes()


def test_direct_tensors_keep_their_bits(tmp_path):
    words = torch.randint(-(2**15), 2**15, (3, 5), dtype=torch.int16)
    wide = torch.randint(-(2**31), 2**31, (2, 3, 4), dtype=torch.int32)
    objects = [
        ("bf16", words.view(torch.bfloat16)),
        ("fp32", wide.view(torch.float32)),
        ("i32", wide),
        ("scalar", torch.tensor(0.75)),
        ("transposed", wide.permute(2, 0, 1)),
    ]
    path = tmp_path / "a.ninfer"
    write_artifact(path, IDENTITY, objects)
    artifact = open_artifact(path)
    assert torch.equal(artifact.tensor("bf16").view(torch.int16), words)
    assert torch.equal(artifact.tensor("fp32").view(torch.int32), wide)
    assert torch.equal(artifact.tensor("i32"), wide)
    assert torch.equal(artifact.tensor("transposed"), wide.permute(2, 0, 1))
    scalar = artifact.tensor("scalar")
    assert (scalar.shape, scalar.item()) == ((), 0.75)
    for name in artifact.names:
        artifact.verify_payload(name)


def test_views_are_private_and_outlive_the_artifact(tmp_path):
    path = tmp_path / "a.ninfer"
    write_artifact(path, IDENTITY, SMALL_OBJECTS)
    before = path.read_bytes()
    artifact = open_artifact(path)
    tensor = artifact.tensor("text/w")
    assert tensor.data_ptr() == artifact.tensor("text/w").data_ptr()
    artifact.close()
    artifact.close()
    with pytest.raises(ArtifactError, match=r"a\.ninfer: the artifact is closed"):
        artifact.tensor("text/w")
    del artifact
    gc.collect()
    tensor.fill_(7)
    assert tensor.tolist() == [[7, 7], [7, 7]]
    assert path.read_bytes() == before


def test_wrong_names(tmp_path):
    path = tmp_path / "a.ninfer"
    write_artifact(path, IDENTITY, SMALL_OBJECTS)
    with open_artifact(path) as artifact:
        with pytest.raises(InventoryError, match="there is no object 'text/x'"):
            artifact.tensor("text/x")
        with pytest.raises(InventoryError, match="there is no object 'x'"):
            artifact.resource("x")
        with pytest.raises(InventoryError, match=r"'frontend/a\.txt' is a resource, not a tensor"):
            artifact.tensor("frontend/a.txt")
        with pytest.raises(InventoryError, match="'text/w' is a tensor, not a resource"):
            artifact.resource("text/w")
        assert artifact.entry("text/w").bytes == 8


def test_bad_payload_words_are_found(tmp_path):
    path = tmp_path / "a.ninfer"
    write_artifact(path, IDENTITY, [("text/w", quantise(torch.randn(4, 128), "Q4G64_F16S"))])
    data = bytearray(path.read_bytes())
    data[-2:] = struct.pack("<H", 0x7E00)
    path.write_bytes(data)
    with open_artifact(path) as artifact:
        artifact.tensor("text/w")
        with pytest.raises(PayloadError, match=r"text/w: scale \[3, 1\] is nan \(word 0x7e00\)"):
            artifact.verify_payload("text/w")


@pytest.mark.parametrize("divisor", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_nvfp4_divisor_is_found_on_reading(tmp_path, divisor):
    path = tmp_path / "a.ninfer"
    write_artifact(path, IDENTITY, [("text/w", quantise(torch.randn(128, 64), "NVFP4"))])
    data = path.read_bytes()[:-4] + struct.pack("<f", divisor)
    path.write_bytes(data)
    with open_artifact(path) as artifact, pytest.raises(PayloadError, match="text/w: divisor is"):
        artifact.tensor("text/w")


def test_nvfp4_vector_as_a_file(tmp_path):
    n = torch.arange(128)[:, None]
    codes = ((3 * n + torch.arange(128)) % 16).to(torch.uint8)
    words = (0x20 + (5 * n + 3 * torch.arange(8)) % 0x50).to(torch.uint8)
    from_vector = Nvfp4Matrix(
        (128, 128),
        (codes[:, ::2] | codes[:, 1::2] << 4),
        words.view(4, 32, 2, 4).permute(2, 1, 0, 3).reshape(-1),
        0.75,
    )
    path = tmp_path / "a.ninfer"
    write_artifact(path, IDENTITY, [("text/w", from_vector)])
    payload = path.read_bytes()[4096:]
    assert hashlib.sha256(payload).hexdigest() == (
        "90e3f634c5d0670362d4a13173de934b8af4bc56d086c7888dd8c2d2a509417a"
    )
    start = "2023262920232629202326292023262925282b2e25282b2e25282b2e25282b2e"
    assert payload[8192:8224].hex() == start
    assert payload[8704:8720].hex() == "2c2f32352c2f32352c2f32352c2f3235"


SPECS = [ResourceSpec("r", 3), TensorSpec("t", (2, 3), "FP32"), ResourceSpec("s", 1)]
TENSOR = torch.zeros(2, 3)


def write_all(writer: ArtifactWriter) -> None:
    writer.write_resource("r", b"abc")
    writer.write_tensor("t", TENSOR)
    writer.write_resource("s", b"d")


def wrong_uses():
    yield "order", lambda w: w.write_tensor("t", TENSOR), "'t' comes out of order; 'r' was declared"
    yield "kind", lambda w: w.write_tensor("r", TENSOR), "'r' is declared a resource"
    yield "length", lambda w: w.write_resource("r", b"ab"), "'r' is declared with 3 bytes, got 2"
    yield "missing", lambda w: w.write_resource("r", b"abc"), "2 declared objects .* first is 't'"

    def late(value):
        def use(writer):
            writer.write_resource("r", b"abc")
            writer.write_tensor("t", value)

        return use

    yield "shape", late(torch.zeros(3, 2)), r"'t' is declared with shape \[2, 3\], got \[3, 2\]"
    yield "dtype", late(TENSOR.double()), r"'t' is declared FP32, got a torch\.float64 tensor"
    packed = quantise(TENSOR, "Q4G64_F16S")
    yield "format", late(packed), "'t' is declared FP32, got Q4G64_F16S"

    def bytes_for_tensor(writer):
        writer.write_resource("r", b"abc")
        writer.write_resource("t", bytes(24))

    yield "bytes", bytes_for_tensor, "'t' is declared a tensor, got bytes"

    def extra(writer):
        write_all(writer)
        writer.write_resource("u", b"d")

    yield "extra", extra, "'u' comes after the last declared object"


@pytest.mark.parametrize(
    ("use", "message"), [c[1:] for c in wrong_uses()], ids=[c[0] for c in wrong_uses()]
)
def test_wrong_writes_leave_the_old_file(tmp_path, use, message):
    path = tmp_path / "a.ninfer"
    path.write_bytes(b"old")
    with pytest.raises(InventoryError, match=message), ArtifactWriter(path, IDENTITY, SPECS) as w:
        use(w)
    assert path.read_bytes() == b"old"
    assert leftovers(tmp_path) == ["a.ninfer"]


def test_any_exception_removes_the_temporary_file(tmp_path):
    with (
        pytest.raises(KeyboardInterrupt),
        ArtifactWriter(tmp_path / "a.ninfer", IDENTITY, SPECS) as writer,
    ):
        assert len(leftovers(tmp_path)) == 1
        writer.write_resource("r", b"abc")
        raise KeyboardInterrupt
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_disk_leaves_the_old_file(tmp_path, monkeypatch, call):
    path = tmp_path / "a.ninfer"
    path.write_bytes(b"old")

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with (
        pytest.raises(ArtifactError, match=r"a\.ninfer: cannot be written: No space left"),
        ArtifactWriter(path, IDENTITY, SPECS) as writer,
    ):
        write_all(writer)
    assert path.read_bytes() == b"old"
    assert leftovers(tmp_path) == ["a.ninfer"]


def test_a_new_file_replaces_the_old_one(tmp_path):
    path = tmp_path / "a.ninfer"
    path.write_bytes(b"old")
    with ArtifactWriter(path, IDENTITY, SPECS) as writer:
        write_all(writer)
        assert path.read_bytes() == b"old"
        assert [entry.offset for entry in writer.directory.entries] == [0, 256, 280]
    with open_artifact(path) as artifact:
        assert artifact.names == ("r", "t", "s")
    assert leftovers(tmp_path) == ["a.ninfer"]


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ([], "objects must be a non-empty array"),
        ([ResourceSpec("r", 0)], "object 'r': bytes must lie in 1.."),
        ([ResourceSpec("", 1)], "name must be a non-empty string"),
        ([ResourceSpec("r", 1), ResourceSpec("r", 1)], "object 'r' is in the directory twice"),
        ([ResourceSpec("\ud800", 1)], "lone surrogate"),
        ([TensorSpec("t", (2,), "Q4G64_F16S")], r"object 't': Q4G64_F16S needs .* got \[2\]"),
        ([TensorSpec("t", (2, 0), "BF16")], r"object 't': shape \[2, 0\] has a size that is not"),
        ([TensorSpec("t", (2,), "F8")], "object 't': unknown format 'F8'"),
        ([TensorSpec("t", (100, 64), "NVFP4")], "object 't': NVFP4 needs rows in multiples"),
        ([TensorSpec("t", (1 << 40, 1 << 40), "BF16")], "object 't': .* more than 2"),
    ],
)
def test_specs_that_no_file_can_hold(tmp_path, specs, message):
    with pytest.raises(DirectoryError, match=message):
        ArtifactWriter(tmp_path / "a.ninfer", IDENTITY, specs)
    assert leftovers(tmp_path) == []


def test_unwritable_places_and_types(tmp_path):
    with pytest.raises(ArtifactError, match=r"a\.ninfer: cannot be created: No such file"):
        write_artifact(tmp_path / "none" / "a.ninfer", IDENTITY, SMALL_OBJECTS)
    for place in (tmp_path, ""):
        with pytest.raises(ArtifactError, match="is a directory; name the file to write"):
            write_artifact(place, IDENTITY, SMALL_OBJECTS)
    with pytest.raises(ArtifactError, match="cannot be created: embedded null"):
        write_artifact(tmp_path / "a\0b", IDENTITY, SMALL_OBJECTS)
    with pytest.raises(DirectoryError, match=r"object 't': no format stores torch\.float64 words"):
        write_artifact(tmp_path / "a.ninfer", IDENTITY, [("t", torch.zeros(1).double())])


def test_planned_sizes():
    specs = [
        TensorSpec("a", (7168, 5120), "Q4G64_F16S"),
        TensorSpec("b", (7168, 5120), "Q5G64_F16S"),
        TensorSpec("c", (248320, 5120), "Q6G64_F16S"),
        TensorSpec("d", (5120, 10240), "W8G32_F16S"),
        TensorSpec("e", (2, 130), "Q5G64_F16S"),
        TensorSpec("f", (14336, 5120), "NVFP4"),
        TensorSpec("g", (14336, 5120), "FP8_E4M3FN_ROW_BF16S"),
        TensorSpec("h", (), "I32"),
        TensorSpec("i", (3, 5), "BF16"),
    ]
    sizes = [entry.bytes for entry in plan_directory(IDENTITY, specs).entries]
    assert sizes == [
        19_496_960, 24_084_480, 993_280_000, 55_705_600, 528, 41_287_684, 73_428_992, 4, 30,
    ]  # fmt: skip


def test_directory_text_round_trip():
    text = files.compact(files.SMALL)
    assert encode_directory(parse_directory(text)) == text
    reordered = json.dumps(
        {key: files.SMALL[key] for key in reversed(files.SMALL)}, indent=2, sort_keys=True
    ).replace("text/w", "text\\u002fw")
    assert parse_directory(reordered.encode()) == parse_directory(text)


def test_opening_a_large_file_reads_its_directory_only(tmp_path):
    path = tmp_path / "big.ninfer"
    text = files.artifact_27b_directory()
    objects = json.loads(text)["objects"]
    payload = objects[-1]["offset"] + objects[-1]["bytes"]
    with path.open("wb") as file:
        file.write(files.frame(text, b""))
        file.truncate(file.tell() + payload)
    assert (len(objects), path.stat().st_size > 17e9) == (1124, True)
    best = min(_seconds_to_open(path) for _ in range(5))
    assert best < 0.1
    with open_artifact(path) as artifact:
        last = artifact.tensor(artifact.names[-1])
        assert last.rows(0, 4).dequantise().eq(0).all()


def _seconds_to_open(path) -> float:
    start = time.process_time()
    open_artifact(path).close()
    return time.process_time() - start


def test_describe(tmp_path):
    path = tmp_path / "a.ninfer"
    packed = quantise(torch.randn(2, 64), "Q4G64_F16S")
    write_artifact(path, IDENTITY, [*SMALL_OBJECTS, ("text/q", packed), ("odd\nname", b"x")])
    with open_artifact(path) as artifact:
        summary = describe(artifact)
    assert summary == describe(read_header(path))
    counts = {name: (t.objects, t.bytes) for name, t in summary.by_format.items()}
    assert counts == {"Q4G64_F16S": (1, 264), "BF16": (1, 8), "raw-bytes-v1": (2, 4)}
    sizes = {name: (t.objects, t.bytes) for name, t in summary.by_prefix.items()}
    assert sizes == {"text": (2, 272), "frontend": (1, 3), "odd\nname": (1, 1)}
    lines = summary.lines()
    assert "identity  m/w" in lines
    assert not any("\n" in line for line in lines)
    assert sum("text/" in line for line in lines) == 2
    assert not any("text/" in line for line in summary.lines(objects=False))
    row = next(line for line in lines if line.startswith("text/q"))
    assert row.split() == ["text/q", "Q4G64_F16S", "[2,", "64]", "512", "264"]
    data = json.loads(json.dumps(summary.as_dict()))
    assert data["identity"] == {"model_id": "m", "weights_id": "w"}
    assert data["objects"][:2] == files.SMALL["objects"]
    assert data["by_prefix"]["text"] == {"objects": 2, "bytes": 272}
