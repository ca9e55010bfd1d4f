"""Every way a file can be wrong: the exact kind of error, and a message that names the cause."""

import json
import os
from pathlib import Path

import artifact_files as files
import pytest

from ninfer.artifact import open_artifact, read_header
from ninfer.artifact.framing import MAX_JSON_BYTES
from ninfer.errors import ArtifactError, DirectoryError, FramingError

WHOLE = files.frame(files.compact(files.SMALL))


def refused(path: Path, kind: type[ArtifactError], message: str) -> None:
    for opener in (open_artifact, read_header):
        with pytest.raises(ArtifactError, match=message) as caught:
            opener(path)
        assert type(caught.value) is kind
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)


def header(magic: bytes, json_bytes: int) -> bytes:
    return magic + json_bytes.to_bytes(8, "little")


MAGIC = b"NINFER\x00\x02"

FRAMING = {
    "empty": (b"", "the file is empty"),
    "one byte": (b"N", "cut short inside the 16-byte header, at 1 bytes"),
    "stem only": (MAGIC[:7], "cut short inside the 16-byte header, at 7 bytes"),
    "magic only": (MAGIC, "cut short inside the 16-byte header, at 8 bytes"),
    "half a length": (WHOLE[:12], "cut short inside the 16-byte header, at 12 bytes"),
    "header only": (WHOLE[:16], "cut short: 16 bytes, but header and directory take 4096"),
    "half a directory": (WHOLE[:100], "cut short: 100 bytes, but header and directory take 4096"),
    "half a padding": (WHOLE[:3000], "cut short: 3000 bytes, .* 4096; fetch it again"),
    "other file": (b"PK\x03\x04" + WHOLE[4:], "is not a .ninfer artifact: it begins with 504b0304"),
    "short other file": (b"GGUF", "is not a .ninfer artifact: it begins with 47475546"),
    "flipped letter": (b"NINFES" + WHOLE[6:], "is not a .ninfer artifact: it begins with 4e494e46"),
    "flipped zero": (b"NINFER\x01\x02" + WHOLE[8:], "is not a .ninfer artifact"),
    "part file": (b"NINPRT\x00\x03" + WHOLE[8:], "is a part file; open the entry file"),
    "v0": (b"NINFER\x00\x00" + WHOLE[8:], "framing v0 does not exist; this version reads v1 to v3"),
    "v4": (
        b"NINFER\x00\x04" + WHOLE[8:],
        r"framing v4 is newer than this version reads \(v1 to v3\): install a newer ninfer, or",
    ),
    "v255": (b"NINFER\x00\xff", r"framing v255 is newer than this version reads"),
    "no directory": (header(MAGIC, 0) + WHOLE[16:], "a directory of 0 bytes"),
    "json beyond the file": (header(MAGIC, 9000) + WHOLE[16:], "cut short: 4360 bytes, .* 12288"),
    "json over the limit": (
        header(MAGIC, MAX_JSON_BYTES + 1) + WHOLE[16:], "directory of 67108865 bytes; the limit is",
    ),
    "json of 2**64": (header(MAGIC, 2**64 - 1) + WHOLE[16:], "of 18446744073709551615 bytes"),
    "json one short": (header(MAGIC, 263) + WHOLE[16:], "directory is not valid JSON"),
    "json one long": (header(MAGIC, 265) + WHOLE[16:], "directory is not valid JSON: Extra data"),
}  # fmt: skip


@pytest.mark.parametrize("case", FRAMING)
def test_framing(tmp_path, case):
    data, message = FRAMING[case]
    path = tmp_path / "a.ninfer"
    path.write_bytes(data)
    refused(path, FramingError, message)


DEEP = 200_000
TEXTS = {
    "not json": (b"hello", "not valid JSON"),
    "latin-1": (b'{"identity":"\xe9"}', "directory is not UTF-8 at byte 13"),
    "utf-16": ('{"a":1}'.encode("utf-16"), "directory is not UTF-8 at byte 0"),
    "byte order mark": (b"\xef\xbb\xbf{}", "not valid JSON"),
    "deep arrays": (b"[" * DEEP + b"]" * DEEP, "nested too deeply"),
    "deep objects": (b'{"a":' * DEEP + b"1" + b"}" * DEEP, "nested too deeply"),
    "open arrays": (b"[" * DEEP, "nested too deeply"),
    "long number": (b'{"identity":' + b"9" * 100_000 + b"}", "not valid JSON: Exceeds the limit"),
    "nan": (b'{"identity":NaN}', "directory holds NaN, which is not JSON"),
    "infinity": (b'{"identity":-Infinity}', "directory holds -Infinity"),
    "member twice": (b'{"identity":1,"identity":2}', "JSON member 'identity' twice"),
    "control character": (b'{"a\n":1}', "not valid JSON: Invalid control character"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_directory_text(tmp_path, case):
    text, message = TEXTS[case]
    path = tmp_path / "a.ninfer"
    path.write_bytes(files.frame(text))
    refused(path, FramingError, message)


def test_member_twice_inside_an_object(tmp_path):
    text = files.compact(files.SMALL).replace(b'"shape"', b'"bytes":8,"shape"')
    path = tmp_path / "a.ninfer"
    path.write_bytes(files.frame(text))
    refused(path, FramingError, "directory has the JSON member 'bytes' twice in one object")


def root(**members: object) -> dict:
    whole = json.loads(json.dumps(files.SMALL)) | members
    return {key: value for key, value in whole.items() if value is not ...}


def resource(**members: object) -> dict:
    first, second = files.SMALL["objects"]
    entry = {key: value for key, value in (first | members).items() if value is not ...}
    return root(objects=[entry, second])


IDENTITY = files.SMALL["identity"]
RESOURCE, TENSOR = files.SMALL["objects"]
tensor = files.small_root
Q4 = {"shape": [2, 2], "format": "Q4G64_F16S", "layout": "row-split-k128-v1"}
# name: (directory, message)
ENTRIES = {
    "root array": ([], "directory root must be a JSON object, got an array"),
    "root null": (None, "directory root must be a JSON object, got null"),
    "root extra": (root(version=2), "directory root has an unknown member 'version'"),
    "root v1": ({"model_id": "m", "objects": []}, "directory root lacks the member 'identity'"),
    "no objects": (root(objects=...), "directory root lacks the member 'objects'"),
    "objects empty": (root(objects=[]), "objects must be a non-empty array"),
    "objects map": (root(objects={"a": 1}), "objects must be a non-empty array"),
    "identity text": (root(identity="m/w"), "identity must be a JSON object, got a string"),
    "identity short": (root(identity={"model_id": "m"}), "identity lacks the member 'weights_id'"),
    "identity extra": (root(identity=IDENTITY | {"x": 1}), "identity has an unknown member 'x'"),
    "identity empty": (
        root(identity=IDENTITY | {"model_id": ""}), "identity: model_id must be .* an empty string",
    ),
    "identity null": (root(identity=IDENTITY | {"model_id": None}), "model_id must be .* got null"),
    "entry text": (root(objects=["a"]), r"objects\[0\] must be a JSON object, got a string"),
    "name missing": (tensor(name=...), r"objects\[1\]: name must be a non-empty string, got null"),
    "name empty": (tensor(name=""), r"objects\[1\]: name must be .* got an empty string"),
    "name number": (tensor(name=7), r"objects\[1\]: name must be .* got an integer"),
    "name surrogate": (tensor(name="\ud800"), r"objects\[1\]: name holds a lone surrogate"),
    "kind missing": (tensor(kind=...), "object 'text/w': kind must be .* got null"),
    "kind other": (tensor(kind="matrix"), "object 'text/w': kind must be .* got 'matrix'"),
    "kind list": (tensor(kind=["tensor"]), "object 'text/w': kind must be .* got an array"),
    "kind swapped": (tensor(kind="resource"), "object 'text/w' lacks the member 'encoding'"),
    "extra member": (tensor(sha=""), "object 'text/w' has an unknown member 'sha'"),
    "encoding other": (resource(encoding="zstd"), r"'frontend/a\.txt': unknown encoding 'zstd'"),
    "encoding null": (resource(encoding=None), r"'frontend/a\.txt': encoding must be .* got null"),
    "resource shape": (resource(shape=[3]), r"'frontend/a\.txt' has an unknown member 'shape'"),
    "resource empty": (resource(bytes=0), r"'frontend/a\.txt': bytes must lie in 1\.\."),
    "format unknown": (tensor(format="bf16"), "object 'text/w': unknown format 'bf16'; known: BF"),
    "format null": (tensor(format=None), "object 'text/w': format must be .* got null"),
    "layout unknown": (tensor(layout="tiled"), "object 'text/w': unknown layout 'tiled'; known: c"),
    "layout of another": (
        tensor(layout="row-scale-v1"),
        "object 'text/w': layout row-scale-v1 does not store BF16; contiguous-le-v1 does",
    ),
    "shape number": (tensor(shape=4), "object 'text/w': shape must be an array, got an integer"),
    "shape zero": (tensor(shape=[2, 0]), r"object 'text/w': shape\[1\] must lie in 1\.\."),
    "shape negative": (tensor(shape=[-2, -2]), r"object 'text/w': shape\[0\] must .* got -2"),
    "shape float": (tensor(shape=[2.0, 2]), r"object 'text/w': shape\[0\] must be .* a float"),
    "shape true": (tensor(shape=[True, 4]), r"object 'text/w': shape\[0\] must be .* got true"),
    "shape huge": (tensor(shape=[2**63]), r"shape\[0\] must lie in .* got 9223372036854775808"),
    "shape overflow": (tensor(shape=[2**62, 2**62]), r"object 'text/w': .* more than 2\*\*63 - 1"),
    "shape rank 17": (tensor(shape=[1] * 17), "object 'text/w': rank 17 is beyond the 16 axes"),
    "packed rank 1": (tensor(**Q4 | {"shape": [4]}), "'text/w': Q4G64_F16S needs a shape of two"),
    "nvfp4 rows": (
        tensor(format="NVFP4", layout="blockscale-k16-m128x4-v1", shape=[64, 64]),
        r"'text/w': NVFP4 needs rows in multiples of 128 .* got \[64, 64\]",
    ),
    "offset float": (tensor(offset=256.0), "object 'text/w': offset must be .* got a float"),
    "offset false": (tensor(offset=False), "object 'text/w': offset must be .* got false"),
    "offset text": (tensor(offset="256"), "object 'text/w': offset must be .* got a string"),
    "offset negative": (tensor(offset=-256), r"object 'text/w': offset must lie in 0\.\."),
    "offset huge": (tensor(offset=10**400), "object 'text/w': offset must .* a very large number"),
    "offset misaligned": (tensor(offset=128), "'text/w': offset 128 is not a multiple of 256"),
    "offset overlaps": (
        root(objects=[RESOURCE | {"bytes": 257}, TENSOR]),
        "object 'text/w': offset 256 overlaps the object that ends at 257",
    ),
    "order": (
        root(objects=[TENSOR, RESOURCE]),
        r"object 'frontend/a\.txt': offset 0 overlaps the object that ends at 264",
    ),
    "bytes short": (tensor(bytes=6), r"'text/w': bytes is 6, but BF16 of shape \[2, 2\] takes 8"),
    "bytes of packed": (tensor(**Q4), r"'text/w': bytes is 8, but Q4G64_F16S .* takes 264"),
    "bytes zero": (tensor(bytes=0), r"object 'text/w': bytes must lie in 1\.\."),
    "bytes null": (tensor(bytes=None), "object 'text/w': bytes must be an integer, got null"),
    "beyond the end": (tensor(offset=512), "'text/w': ends at 520, beyond the 264 payload bytes"),
    "far beyond": (tensor(offset=2**62), "'text/w': ends at 4611686018427387912, beyond"),
    "name twice": (
        root(objects=[RESOURCE | {"name": "text/w"}, TENSOR]),
        "object 'text/w' is in the directory twice",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ENTRIES)
def test_directory_entries(tmp_path, case):
    directory, message = ENTRIES[case]
    path = tmp_path / "a.ninfer"
    path.write_bytes(files.frame(files.compact(directory)))
    refused(path, DirectoryError, message)


def test_every_truncation_is_refused(tmp_path):
    path = tmp_path / "a.ninfer"
    for size in [*range(300), *range(4000, len(WHOLE))]:
        path.write_bytes(WHOLE[:size])
        kind = FramingError if size < 4096 else DirectoryError
        with pytest.raises(kind):
            open_artifact(path)
    path.write_bytes(WHOLE + b"trailing bytes mean nothing")
    open_artifact(path).close()


def test_padding_is_ignored(tmp_path):
    path = tmp_path / "a.ninfer"
    end = 16 + len(files.compact(files.SMALL))
    path.write_bytes(WHOLE[:end] + b"\xff" * (4096 - end) + WHOLE[4096:])
    with open_artifact(path) as artifact:
        assert artifact.resource("frontend/a.txt") == b"abc"


def test_places_that_hold_no_file(tmp_path):
    refused(tmp_path / "none.ninfer", ArtifactError, r"none\.ninfer: no such file")
    refused(tmp_path, ArtifactError, "is a directory; name the .ninfer file itself")
    (tmp_path / "file").write_bytes(WHOLE)
    refused(tmp_path / "file" / "a", ArtifactError, "cannot be opened: Not a directory")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", ArtifactError, "is not a regular file")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    refused(tmp_path / "loop", ArtifactError, "cannot be opened: Too many levels")
    refused(tmp_path / "a\0b", ArtifactError, "cannot be opened: embedded null")


def test_files_that_may_not_be_read(tmp_path, monkeypatch):
    path = tmp_path / "a.ninfer"
    path.write_bytes(WHOLE)

    def forbidden(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", forbidden)
        refused(path, ArtifactError, "cannot be opened: Permission denied")
    with monkeypatch.context() as patch:
        patch.setattr("mmap.mmap", forbidden)
        with pytest.raises(ArtifactError, match="cannot be mapped: Permission denied"):
            open_artifact(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", forbidden)
        refused(path, ArtifactError, "cannot be read: Permission denied")
