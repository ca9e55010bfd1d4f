"""Running programs the way a person would: outside the test environment, errors shown."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.e2e.page_visit import FLAGS, Visit, chromium
from tests.server.page_server import PageServer, served

ROOT = Path(__file__).resolve().parent.parent.parent
# What an outer make or environment would pass on to the programs under test.
INHERITED = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHONPATH", "VIRTUAL_ENV")

Program = Callable[..., str]


def clean_environment(extra_path: Path | None = None) -> dict[str, str]:
    """The environment without traces of this test run; `extra_path` comes first on PATH."""
    kept = {name: value for name, value in os.environ.items() if name not in INHERITED}
    if extra_path is not None:
        kept["PATH"] = f"{extra_path}{os.pathsep}{kept['PATH']}"
    return kept


@pytest.fixture(scope="session")
def program() -> Program:
    """Run a command to its end and return stdout, or stderr of one that has to fail."""

    def run(*command: str | Path, cwd: Path, path: Path | None = None, fails: bool = False) -> str:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env=clean_environment(path),
            capture_output=True,
            text=True,
        )
        shown = f"{command} gave {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        assert (done.returncode != 0) == fails, shown
        return done.stderr if fails else done.stdout

    return run


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory, program: Program) -> Path:
    """The wheel, built from the source archive as a release is."""
    folder = tmp_path_factory.mktemp("dist")
    program(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, program: Program, wheel: Path) -> Path:
    """Folder of programs of a fresh environment that holds the wheel and its dependencies only."""
    folder = tmp_path_factory.mktemp("environment")
    program(sys.executable, "-m", "venv", folder, cwd=folder)
    python = folder / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    program(python, "-m", "pip", "install", "-q", "-c", constraints, wheel, cwd=folder)
    return folder / "bin"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield running
        running.close()


@pytest.fixture
def server() -> Iterator[PageServer]:
    with served() as page_server:
        yield page_server


@pytest.fixture
def open_page(browser: Browser, server: PageServer) -> Iterator:
    visits: list[Visit] = []

    def visit(**options: object) -> Visit:
        context = browser.new_context(**{"viewport": {"width": 1360, "height": 860}, **options})
        visits.append(Visit(context.new_page(), server.root))
        return visits[-1]

    yield visit
    for one in visits:
        one.page.context.close()
        assert one.problems == [] and one.foreign == []
