"""The package and its extras resolve together; the tool that says so can also say no."""

import zipfile
from pathlib import Path

import pytest

from tools import extras
from tools.extras import Outcome, extras_of, resolve, sets_of


def wheel(folder: Path, name: str, version: str, needs: str = "") -> None:
    """An empty package of that name."""
    info = f"{name}-{version}.dist-info"
    lines = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    lines += f"Requires-Dist: {needs}\n" if needs else ""
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{info}/METADATA", lines)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A package whose extra `new` needs one that `old` cannot have; an index that is a folder."""
    index = tmp_path / "index"
    index.mkdir()
    for version in ("1.0", "2.0"):
        wheel(index, "shared", version)
    wheel(index, "older", "1.0", "shared<2")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "thing"\nversion = "1"\n'
        '[project.optional-dependencies]\nold = ["older"]\nnew = ["shared>=2"]\ndev = ["gone"]\n'
    )
    (folder / "backend.py").write_text(
        "from pathlib import Path\n"
        "def prepare_metadata_for_build_wheel(folder, settings=None):\n"
        "    info = Path(folder) / 'thing-1.dist-info'\n"
        "    info.mkdir()\n"
        "    (info / 'METADATA').write_text('Metadata-Version: 2.1\\nName: thing\\nVersion: 1\\n'\n"
        "        'Provides-Extra: old\\nProvides-Extra: new\\n'\n"
        "        'Requires-Dist: older ; extra == \"old\"\\n'\n"
        "        'Requires-Dist: shared>=2 ; extra == \"new\"\\n')\n"
        "    return info.name\n"
        "def build_wheel(*_, **__):\n    raise AssertionError('nothing is built')\n"
    )
    return folder


@pytest.mark.e2e
def test_a_conflict_is_told_from_none_and_from_no_index(project: Path) -> None:
    found = extras_of(project)
    assert found == ("new", "old"), "what developers have is not what users are promised"
    local = ["--no-index", "--find-links", str(project.parent / "index"), "--no-build-isolation"]
    for one in found:
        assert resolve(project, [one], local).outcome is Outcome.RESOLVED
    assert resolve(project, ["old"], local).packages == 3
    both = resolve(project, found, local)
    assert both.outcome is Outcome.CONFLICT and "does not resolve" in str(both)
    nobody = ["--isolated", "--index-url", "http://127.0.0.1:9/simple", "--retries", "0"]
    nobody.append("--no-build-isolation")
    gone = resolve(project, ["new"], nobody)
    assert gone.outcome is Outcome.UNREACHABLE and "cannot be reached" in str(gone)


def test_those_apart_are_resolved_alone() -> None:
    assert sets_of(("a", "b", "c"), ("b",)) == [("a", "c"), ("b",)]
    assert set(extras.APART) <= set(extras_of(extras.ROOT))


@pytest.mark.e2e
@pytest.mark.timeout(1500)
def test_base_and_extras_resolve_together(capsys: pytest.CaptureFixture[str]) -> None:
    """Must-show 6. Without a network it shows nothing, and says so."""
    assert extras.main() == 0, capsys.readouterr().out
    shown = capsys.readouterr().out
    assert ("resolves (" in shown) != ("cannot be reached" in shown), shown
    assert "SkyPilot is kept apart" in shown
