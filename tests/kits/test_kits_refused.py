"""The five kits that must never be installed: refused by the command, each with its own reason.

Whatever was installed before is still whole and current, and nothing else lies beside it.
"""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from kit_files import STACK, rewrite, write_kit

from ninfer.cli.main import main
from ninfer.kits import use as using
from ninfer.kits.home import KIT
from ninfer.kits.install import damaged, installed
from ninfer.kits.stack import Stack


def flipped_bit(good: Path, bad: Path) -> None:
    """One bit of a file, in an archive whose own checksum is right."""

    def change(entries):
        member, data = entries[-1]
        entries[-1] = (member, bytes([data[0] ^ 1]) + data[1:])

    rewrite(good, bad, change)


def wrong_architecture(good: Path, bad: Path) -> None:
    write_kit(bad, architecture=86)


def wrong_triton(good: Path, bad: Path) -> None:
    write_kit(bad, stack=replace(STACK, triton="3.6.0", triton_key="cd" * 32))


def leaves_the_kit(good: Path, bad: Path) -> None:
    def change(entries):
        entries[-1][0].name = "../../../outside"

    rewrite(good, bad, change)


def missing_file(good: Path, bad: Path) -> None:
    def change(entries):
        del entries[-1]

    rewrite(good, bad, change)


REFUSALS = {
    flipped_bit: "is damaged: its SHA-256 is not the manifest's",
    wrong_architecture: "the card is sm_90, the kit for sm_86",
    wrong_triton: "triton is 3.9.0 here and 3.6.0 in the kit",
    leaves_the_kit: "'../../../outside' is not a file of the manifest",
    missing_file: "is missing, and 0 more",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an H200 and a good kit."""
    monkeypatch.setenv("NINFER_KITS", str(tmp_path / "kits"))
    monkeypatch.delenv(KIT, raising=False)
    monkeypatch.setattr(Stack, "here", classmethod(lambda cls: STACK))
    monkeypatch.setattr(using, "card", lambda: 90)
    assert main(["kit", "install", str(write_kit(tmp_path / "good.tar.gz"))]) == 0
    return tmp_path / "kits"


def state(folder: Path) -> dict[str, object]:
    """Every file and link below a folder with what is in it."""
    return {
        str(path.relative_to(folder)): path.readlink() if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def test_five_refusals_and_nothing_half_installed(
    tmp_path: Path, place: Path, capsys: pytest.CaptureFixture[str]
):
    before, table = state(place), []
    outside = set(tmp_path.iterdir())
    for make, reason in REFUSALS.items():
        bad = tmp_path / f"{make.__name__}.tar.gz"
        make(tmp_path / "good.tar.gz", bad)
        outside |= {bad, bad.with_name(f"{bad.name}.files")}
        capsys.readouterr()
        assert main(["kit", "install", str(bad)]) == 1, make.__name__
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert reason in line, line
        assert state(place) == before and set(tmp_path.iterdir()) <= outside
        table.append(f"{make.__name__:18}  {line.partition(bad.name + ': ')[2]}")
    assert damaged(installed(place / "current-sm90")) == []
    with capsys.disabled():
        sys.stdout.write("\n".join(["", "fault               refused with", *table, ""]))


def test_the_command_without_a_kit_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["kit", "install", str(tmp_path / "none.tar.gz")]) == 1
    assert "none.tar.gz: no such file" in capsys.readouterr().err
