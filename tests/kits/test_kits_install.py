"""Installing a kit: refused with the reason and nothing half done, or there and in use."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import triton
from kit_files import GROUP, KERNEL, STACK, rewrite, write_kit

from ninfer.errors import KitError, UsageError
from ninfer.kits import install as installing
from ninfer.kits import use as using
from ninfer.kits.home import CUDA, KIT, TRITON, any_kit, kit_of
from ninfer.kits.install import damaged, install, installed, verify
from ninfer.kits.stack import Stack
from ninfer.kits.urls import STORE, architecture_of, kit_url


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    return write_kit(tmp_path / "good.kit.tar.gz")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home of kits."""
    monkeypatch.setenv("NINFER_KITS", str(tmp_path / "kits"))
    monkeypatch.delenv(KIT, raising=False)
    return tmp_path / "kits"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_an_installed_kit_is_whole_current_and_relocated(kit: Path, place: Path):
    assert not any_kit() and kit_of(90) is None
    found = install(kit, place, STACK, 90)
    assert kit_of(90) == found.folder and kit_of(86) is None and any_kit()
    assert installed(found.folder) == found and damaged(found) == []
    group = json.loads((found.folder / GROUP).read_text())
    assert group["child_paths"] == {"attend.cubin": str(found.folder / KERNEL)}
    assert names(place) == ["current-sm90", found.manifest.id]


def test_installing_again_replaces_it(kit: Path, place: Path):
    first = install(kit, place, STACK, 90)
    (first.folder / KERNEL).write_bytes(b"spoiled")
    assert damaged(first) == [KERNEL]
    assert damaged(install(kit, place, STACK, None)) == []
    assert names(place) == ["current-sm90", first.manifest.id]


@pytest.mark.parametrize(
    ("stack", "card", "reason"),
    [
        (STACK, 86, "the card is sm_86, the kit for sm_90"),
        (replace(STACK, triton="3.6.0"), 90, "triton is 3.6.0 here and 3.9.0 in the kit"),
        (replace(STACK, triton_key="cd" * 32), 90, "Triton's build is cdcdcdcdcdcd here"),
        (replace(STACK, python="cpython-312"), 90, "Python is cpython-312 here"),
        (replace(STACK, torch="2.11.0"), None, "torch is 2.11.0 here and 2.13.0 in the kit"),
        (replace(STACK, machine="aarch64"), None, "machine is aarch64 here"),
    ],
)
def test_a_kit_for_another_machine_is_refused_unless_forced(
    kit: Path, place: Path, stack: Stack, card: int | None, reason: str
):
    """Scenario 12: the wrong architecture is refused before anything is written."""
    with pytest.raises(KitError, match=reason):
        install(kit, place, stack, card)
    assert names(place) == []
    assert install(kit, place, stack, card, force=True).folder.is_dir()


def test_another_version_is_refused(tmp_path: Path, place: Path):
    old = write_kit(tmp_path / "old.tar.gz", ninfer="0.0.1")
    with pytest.raises(KitError, match=r"ninfer is .* here and 0\.0\.1 in the kit"):
        install(old, place, STACK, 90)


def test_a_damaged_kit_leaves_what_was_there(kit: Path, place: Path, tmp_path: Path):
    """Scenario 9: a corrupt kit is never used."""
    first = install(kit, place, STACK, 90)

    def flip(entries):
        entries[-1] = (entries[-1][0], b"\0" * len(entries[-1][1]))

    bad = rewrite(kit, tmp_path / "bad.tar.gz", flip)
    for digest in ("", "0" * 64):
        with pytest.raises(KitError, match=r"damaged|its SHA-256 is"):
            install(bad, place, STACK, 90, sha256=digest)
        assert names(place) == ["current-sm90", first.manifest.id]
        assert damaged(first) == []
    with pytest.raises(KitError, match="damaged"):
        verify(bad)


def test_a_full_disk_is_said_before_anything_is_written(
    kit: Path, place: Path, monkeypatch: pytest.MonkeyPatch
):
    usage = installing.shutil.disk_usage(kit.parent)
    monkeypatch.setattr(installing.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(KitError, match="1,000 bytes free, the kit needs"):
        install(kit, place, STACK, 90)
    assert names(place) == []


def test_a_crash_between_the_renames_is_undone(
    kit: Path, place: Path, monkeypatch: pytest.MonkeyPatch
):
    first = install(kit, place, STACK, 90)
    rename, count = os.rename, []

    def fails_second(source: object, target: object) -> None:
        count.append(source)
        if len(count) == 2:
            raise OSError("no")
        rename(source, target)

    monkeypatch.setattr(installing.os, "rename", fails_second)
    with pytest.raises(OSError, match="no"):
        install(kit, place, STACK, 90)
    assert damaged(first) == [] and names(place) == ["current-sm90", first.manifest.id]


@pytest.fixture
def caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """What use_kit changes, put back."""
    monkeypatch.setattr(triton.knobs.cache, "dir", triton.knobs.cache.dir)
    for name in ("TRITON_CACHE_DIR", "NINFER_KERNELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(using, "card", lambda: 90)
    monkeypatch.setattr(Stack, "here", classmethod(lambda cls: STACK))


@pytest.mark.usefixtures("caches")
def test_the_current_kit_is_used(kit: Path, place: Path, monkeypatch: pytest.MonkeyPatch):
    assert not using.use_kit()
    folder = install(kit, place, STACK, 90).folder
    assert using.use_kit()
    assert Path(triton.knobs.cache.dir) == folder / TRITON
    assert os.environ["NINFER_KERNELS"] == str(folder / CUDA)
    monkeypatch.setenv("NINFER_KERNELS", "mine")
    monkeypatch.setenv("TRITON_CACHE_DIR", "mine too")
    assert using.use_kit() and os.environ["NINFER_KERNELS"] == "mine"


@pytest.mark.usefixtures("caches")
@pytest.mark.parametrize("fault", ["stack", "manifest", "folder"])
def test_one_that_does_not_fit_is_named_and_left_alone(
    kit: Path,
    place: Path,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    folder = install(kit, place, STACK, 90).folder
    if fault == "stack":
        other = replace(STACK, triton="3.6.0")
        monkeypatch.setattr(Stack, "here", classmethod(lambda cls: other))
    elif fault == "manifest":
        (folder / "MANIFEST.json").write_text("{")
    else:
        monkeypatch.setenv(KIT, str(folder / "nowhere"))
    assert not using.use_kit() and "NINFER_KERNELS" not in os.environ
    want = {"stack": "triton is 3.6.0 here", "manifest": "MANIFEST.json", "folder": "nowhere"}
    assert "kernels are compiled when first needed" in caplog.text and want[fault] in caplog.text


def test_its_programs_run_where_they_lie(kit: Path, place: Path):
    folder = install(kit, place, STACK, 90).folder
    environment = {**os.environ, "NINFER_PYTHON": sys.executable}

    def said(program: Path, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *arguments],
            env={**environment, **changes},
            capture_output=True,
            text=True,
            check=False,
        )

    moved = place / "moved"
    folder.rename(moved)
    link = place / "link"
    link.symlink_to(moved / "bin" / "ninfer")
    assert said(link, "plan", "a b").stdout == f"{moved} plan a b\n"
    assert said(moved / "bin" / "ninfer-serve", "x").stdout == f"{moved} serve x\n"
    missing = said(link, NINFER_PYTHON="/nowhere/python")
    assert missing.returncode == 2 and "set NINFER_PYTHON" in missing.stderr


def test_addresses(monkeypatch: pytest.MonkeyPatch):
    assert architecture_of("RTX 5090") == architecture_of("sm_120") == architecture_of("120") == 120
    with pytest.raises(UsageError, match="no known card"):
        architecture_of("Voodoo 2")
    monkeypatch.delenv(STORE, raising=False)
    with pytest.raises(UsageError, match=r"NINFER_KIT_STORE is not set .*--architecture 86"):
        kit_url("rtx3090")
    monkeypatch.setenv(STORE, "https://kits.example/v1/")
    assert kit_url("h200").startswith("https://kits.example/v1/ninfer-")
    assert kit_url("h200").endswith("-sm90.kit.tar.gz")
