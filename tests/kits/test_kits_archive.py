"""A kit's archive: the same bytes twice, and everything that is not as listed refused by name."""

import json
import tarfile
from pathlib import Path

import pytest
from kit_files import CONTENT, KERNEL, edit_manifest, manifest_of, rewrite, write_kit

from ninfer.errors import KitError
from ninfer.kits.archive import read_manifest, unpack
from ninfer.kits.manifest import parse_manifest, safe_path


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    return write_kit(tmp_path / "good.kit.tar.gz")


def test_the_same_files_are_the_same_bytes(tmp_path: Path, kit: Path):
    (tmp_path / "other").mkdir()
    assert write_kit(tmp_path / "other" / "copy.tar.gz").read_bytes() == kit.read_bytes()


def test_a_whole_kit_is_unpacked_as_it_was(tmp_path: Path, kit: Path):
    folder = tmp_path / "out"
    folder.mkdir()
    manifest = unpack(kit, folder)
    assert manifest == manifest_of(CONTENT) == read_manifest(kit)
    found = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    assert {name: path.read_bytes() for name, path in found.items()} == CONTENT
    assert found["bin/ninfer"].stat().st_mode & 0o777 == 0o755
    assert found[KERNEL].stat().st_mode & 0o777 == 0o644


def test_any_flipped_bit_is_found(tmp_path: Path, kit: Path):
    """Of the compressed file: wherever it falls, the kit is refused or the same."""
    whole, bad = kit.read_bytes(), tmp_path / "bad.tar.gz"
    want = unpack(kit, None)
    refused = 0
    for at in range(0, len(whole), 7):
        data = bytearray(whole)
        data[at] ^= 0x10
        bad.write_bytes(data)
        try:
            # Bits of the gzip header that mean nothing change nothing.
            assert unpack(bad, None) == want
        except KitError as error:
            assert str(bad) in str(error)
            refused += 1
    assert refused > len(whole) // 7 - 12


@pytest.mark.parametrize("size", [0, 1, 10, 100, 0.5, 0.9])
def test_a_cut_kit_is_refused(tmp_path: Path, kit: Path, size: float):
    data = kit.read_bytes()
    count = int(size * len(data)) if isinstance(size, float) else size
    bad = tmp_path / "cut.tar.gz"
    bad.write_bytes(data[:count])
    with pytest.raises(KitError, match=r"cut\.tar\.gz"):
        unpack(bad, None)


def flipped(entries):
    entries[-1] = (entries[-1][0], bytes([entries[-1][1][0] ^ 1]) + entries[-1][1][1:])


def missing(entries):
    del entries[2]


def one_more(entries):
    entries.append((tarfile.TarInfo("lib/extra.py"), b"import os"))


def twice(entries):
    entries.append(entries[-1])


def longer(entries):
    entries[-1] = (entries[-1][0], entries[-1][1] + b"x")


def climbing(entries):
    entries[-1][0].name = "../../outside"


def absolute(entries):
    entries[-1][0].name = "/outside"


def link(entries):
    member = entries[-1][0]
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"


def device(entries):
    entries[-1][0].type = tarfile.CHRTYPE


def late_manifest(entries):
    entries.append(entries.pop(0))


def listed_outside(entries):
    def change(values):
        values["files"][0]["path"] = "../outside"

    edit_manifest(entries, change)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (flipped, "damaged: its SHA-256"),
        (missing, "is missing"),
        (one_more, "'lib/extra.py' is not a file of the manifest"),
        (twice, "is not a file of the manifest"),
        (longer, "bytes expected"),
        (climbing, "'../../outside' is not a file of the manifest"),
        (absolute, "outside' is not a file of the manifest"),
        (link, "no plain file"),
        (device, "no plain file"),
        (late_manifest, "MANIFEST.json is not its first entry"),
        (listed_outside, "'../outside' is no path of a file in a kit"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_not_as_listed_is_refused(tmp_path: Path, kit: Path, change, reason: str):
    bad = rewrite(kit, tmp_path / "bad.tar.gz", change)
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(KitError, match=reason):
        unpack(bad, folder)
    assert not (tmp_path / "outside").exists() and not (tmp_path.parent / "outside").exists()


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("schema", 2, "schema is 2"),
        ("id", "../x", "id is '../x'"),
        ("architecture", "90", "architecture is '90', not of type int"),
        ("architecture", True, "architecture is True"),
        ("stack", [], "stack is"),
        ("stack", {}, "stack: python is None"),
        ("models", [1], "models holds something else than text"),
        ("files", [7], "files: is int"),
        ("files", [{"path": "a", "bytes": -1}], "bytes is -1"),
        ("files", [{"path": "a", "bytes": 1, "sha256": "x"}], "sha256 is 'x'"),
    ],
)
def test_a_wrong_manifest_is_named(name: str, value: object, reason: str):
    values = json.loads(manifest_of(CONTENT).to_json())
    values[name] = value
    with pytest.raises(KitError, match=reason):
        parse_manifest(json.dumps(values), "kit")


@pytest.mark.parametrize("names", [("a", "a"), ("a/b", "A/B")])
def test_two_files_of_one_name_are_refused(names: tuple[str, str]):
    values = json.loads(manifest_of(CONTENT).to_json())
    values["files"] = [{**values["files"][0], "path": name} for name in names]
    with pytest.raises(KitError, match="listed twice"):
        parse_manifest(json.dumps(values), "kit")


@pytest.mark.parametrize(
    "path", ["", ".", "..", "a/..", "a/../b", "/a", "a//b", "./a", "a/", "a\\b", "a\0"]
)
def test_unsafe_paths(path: str):
    assert not safe_path(path)
    assert safe_path("a/b.c") and safe_path("a..b")
