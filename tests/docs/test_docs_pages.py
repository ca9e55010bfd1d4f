"""Generated pages are fresh, their generators do not depend on the machine, texts agree with the
tree."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ninfer.engine.registered import registered_sizes
from ninfer.version import VERSION
from tools import (
    check_release,
    gen_docs,
    memory_pages,
    reports,
    rules,
    runtime_pages,
    soak_report,
    source_pages,
)
from tools.markdown import first_sentence, table

ROOT = Path(__file__).resolve().parent.parent.parent
TEXTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
MARKDOWN_LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def test_generated_pages_are_fresh():
    assert sorted(gen_docs.stale_pages(ROOT)) == [], "run `make docs`"


def test_stale_page_is_named_and_written(tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(gen_docs, "ROOT", tmp_path)
    monkeypatch.setattr(gen_docs, "PAGES", {"docs/a.md": lambda root: "new\n"})
    assert gen_docs.main(["--check"]) == 1
    assert "docs/a.md is stale" in capsys.readouterr().out
    assert not (tmp_path / "docs" / "a.md").exists()
    assert gen_docs.main([]) == 0
    assert (tmp_path / "docs" / "a.md").read_text() == "new\n"
    assert gen_docs.main(["--check"]) == 0


def test_page_of_a_vanished_part_is_removed(tmp_path: Path, monkeypatch):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("old\n")
    monkeypatch.setattr(gen_docs, "ROOT", tmp_path)
    monkeypatch.setattr(gen_docs, "PAGES", {"docs/a.md": lambda root: None})
    assert gen_docs.main([]) == 0
    assert not (tmp_path / "docs" / "a.md").exists()


def test_pages_do_not_depend_on_terminal_width(monkeypatch: pytest.MonkeyPatch):
    written = []
    for columns in ("40", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        written.append({path: generate(ROOT) for path, generate in gen_docs.PAGES.items()})
    assert written[0] == written[1]


def test_every_report_has_tests_named_by_its_id(tmp_path: Path, monkeypatch):
    page = reports.reports(ROOT)
    assert page is not None
    names = re.findall(r"`([\w/]+\.py)::(\w+)`", page)
    assert len(names) > len(reports.REPORTS)
    for file, name in names:
        assert f"def {name}(" in (ROOT / "tests" / file).read_text()
    assert reports.REST.keys() <= reports.REPORTS.keys()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(
        "def test_e2_e5_x(): pass\ndef test_e7x(): pass\n"
    )
    monkeypatch.setattr(reports, "REPORTS", {"E2": "a", "E5": "b"})
    assert "| E5 | b | `test_a.py::test_e2_e5_x` |" in str(reports.reports(tmp_path))
    monkeypatch.setattr(reports, "REPORTS", {"E2": "a", "E7": "b"})
    with pytest.raises(ValueError, match=r"in its name: E7$"):
        reports.reports(tmp_path)


@pytest.mark.parametrize("identity", memory_pages.ARTIFACTS, ids=lambda one: one.model_id)
def test_what_is_not_asked_for_takes_no_memory(identity):
    model = registered_sizes(identity)
    nothing = memory_pages.parts_of(model, {})
    assert nothing.keys() & {"MTP weights", "DFlash weights", "vision weights"} == set()
    wanted = memory_pages.parts_of(model, {"kv_dtype": "int8", "spec": "mtp", "vision": True})
    assert wanted["KV pages"] < nothing["KV pages"]
    assert wanted["text weights"] == nothing["text weights"]
    assert wanted["MTP weights"] and wanted["vision weights"]
    assert wanted["state slots"] > nothing["state slots"]


def test_map_keeps_the_text_around_it(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "ninfer" / "ops").mkdir(parents=True)
    (tmp_path / "ninfer" / "ops" / "norm.py").write_text('"""Norms: a | b.\n\nMore."""\n')
    page = f"before\n{source_pages.MAP_BEGIN}\nold\n{source_pages.MAP_END}\nafter\n"
    (tmp_path / "docs" / "architecture.md").write_text(page)
    text = source_pages.architecture(tmp_path)
    assert text.startswith("before\n") and text.endswith("after\n")
    assert "| `ops/norm.py` | Norms: a \\| b |" in text
    assert "`ninfer/ops/` (floor 2)" in text
    assert "old" not in text.splitlines() and "More" not in text


def test_command_page_lists_arguments_and_subcommands():
    parser = argparse.ArgumentParser(prog="ninfer x", description="Does x.")
    parser.add_argument("file", metavar="FILE", help="what to read")
    parser.add_argument("--seed", type=int, default=3, help="start (default of %(prog)s)")
    parser.add_argument("--mode", choices=["a", "b"], help="50%% or all")
    parser.add_argument("--hidden", help=argparse.SUPPRESS)
    inner = parser.add_subparsers().add_parser("deep", description="Deeper.")
    inner.add_argument("-q", "--quiet", action="store_true", help="say less")

    lines = runtime_pages.command_section("ninfer x", parser)
    assert "| `FILE` | what to read |" in lines
    assert "| `--seed SEED` | start (default of ninfer x) |" in lines
    assert "| `--mode {a,b}` | 50% or all |" in lines
    assert "## ninfer x deep" in lines
    assert "| `-q, --quiet` | say less |" in lines
    assert not any("hidden" in line for line in lines)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (int, "int"),
        (Path | None, "Path | None"),
        (tuple[str, ...], "tuple[str, ...]"),
        ("Path", "Path"),
    ],
)
def test_types_read_the_same_in_every_python(kind: object, text: str):
    assert runtime_pages.type_text(kind) == text


def test_first_sentence_and_table_stay_on_one_line():
    assert first_sentence("Holds a\nand b.\n\nMore.") == "Holds a and b"
    assert table(["h"], [["a\n  b|c"]])[-1] == "| a b\\|c |"


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(text: Path):
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in MARKDOWN_LINK.findall(prose):
        assert (text.parent / target).exists(), f"{text.name} links to {target}"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "AGENTS.md"])
def test_named_verbs_are_in_the_makefile(name: str):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9]+):", makefile, flags=re.MULTILINE))
    verbs = set(re.findall(r"^`?make ([a-z0-9]+)\b", _code_of(ROOT / name), re.M))
    assert verbs and verbs <= targets


def _code_of(path: Path) -> str:
    """Code blocks and inline code of a Markdown file."""
    text = path.read_text(encoding="utf-8")
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, flags=re.DOTALL))


@pytest.mark.parametrize("name", ["AGENTS.md", "docs/architecture.md"])
def test_drawn_floors_match_the_rules(name: str):
    text = (ROOT / name).read_text(encoding="utf-8")
    drawn = {
        int(number): names.split() for number, names in re.findall(r"^(\d)  (.+)$", text, re.M)
    }
    assert set(drawn) == set(range(len(rules.FLOORS)))
    for number, names in drawn.items():
        assert set(names) == set(rules.FLOORS[number])


def test_agents_page_is_short():
    assert len((ROOT / "AGENTS.md").read_text(encoding="utf-8").splitlines()) <= 60


def test_every_decision_is_listed():
    index = (ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
    records = sorted(path.name for path in ROOT.glob("docs/adr/0*.md"))
    assert re.findall(r"\((0[^)]+)\)", index) == records
    for name in records:
        text = (ROOT / "docs" / "adr" / name).read_text(encoding="utf-8")
        assert re.findall(r"^## (\w+)$", text, flags=re.MULTILINE) == ["Context", "Choice", "Cost"]


def test_changelog_starts_with_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert check_release.newest_entry(changelog) == VERSION


@pytest.mark.parametrize("text", ["# Changelog\n", "## 1.0\n", "## [1.0.0]\n"])
def test_broken_changelog_is_refused(text: str):
    with pytest.raises(ValueError):
        check_release.newest_entry(text)


JUNIT = """<testsuites><testsuite>
<testcase classname="tests.b" name="test_two" time="2.5"><failure message="x"/></testcase>
<testcase classname="tests.a" name="test_one" time="1.25"><properties>
<property name="count" value="10000"/><property name="unit" value="mutations"/>
</properties></testcase></testsuite></testsuites>"""


def test_soak_page_states_counts_and_failures(tmp_path: Path):
    page = soak_report.render(soak_report.outcomes(JUNIT), date="2030-01-02", revision="abc")
    assert "| `tests.a::test_one` | 10,000 mutations | 1.2 | passed |" in page
    assert "| `tests.b::test_two` | not stated | 2.5 | FAILED |" in page
    assert "1 passed, 1 failed" in page and "2030-01-02" in page and "revision abc" in page
    junit = tmp_path / "soak.xml"
    junit.write_text(JUNIT)
    assert soak_report.main([str(junit), str(tmp_path / "page.md")]) == 1
    added = soak_report.add(soak_report.outcomes(JUNIT)[:1], page, revision="def")
    assert "| `tests.a::test_one` | 10,000 mutations | 1.2 | passed at def |" in added
    assert "| `tests.b::test_two` | not stated | 2.5 | FAILED |" in added
    assert "1 passed, 1 failed" in added and added.count("tests.a::") == 1
    junit.write_text("<testsuites/>")
    assert soak_report.main([str(junit), str(tmp_path / "none.md")]) == 1
    assert not (tmp_path / "none.md").exists()


SOAK_TEST = """
import pytest

@pytest.mark.soak
def test_many(record_property):
    record_property("count", 70)
    record_property("unit", "rounds")
"""


def test_count_of_a_soak_test_reaches_the_page(tmp_path: Path):
    """With the settings of this repository, in a run of its own as `make soak` makes it."""
    (tmp_path / "test_many.py").write_text(SOAK_TEST)
    junit = tmp_path / "soak.xml"
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-m", "soak"]
    command += ["-p", "no:cacheprovider", f"--rootdir={tmp_path}", f"--junitxml={junit}"]
    done = subprocess.run([*command, tmp_path], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    (outcome,) = soak_report.outcomes(junit.read_text())
    assert (outcome.count, outcome.unit, outcome.passed) == (70, "rounds", True)
