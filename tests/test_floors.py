"""The source rules hold for the package, and each rule catches a small bad tree."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from tools import floors, rules, sources

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ninfer"
DOC = '"""One sentence."""\n'

LIGHT_MODULES = (
    "ninfer",
    "ninfer.cli",
    "ninfer.artifact.fetch",
    "ninfer.cards",
    "ninfer.formats.registry",
    "ninfer.models.qwen3_6.inventory",
)


def test_package_follows_every_rule():
    assert [str(finding) for finding in floors.check(PACKAGE)] == []


def test_every_exception_gives_a_reason():
    tables = (rules.LONG_FILES, rules.LONG_FUNCTIONS, rules.FOREIGN_EXCEPTIONS)
    assert all(len(reason) > 20 for table in tables for reason in table.values())


def findings_of(tmp_path: Path, files: dict[str, str]) -> set[tuple[str, str]]:
    """(path, rule) of each finding in a package made of `files` and the `__init__`s they need."""
    folders = {parent for path in files for parent in Path(path).parents}
    inits = {(folder / "__init__.py").as_posix(): DOC for folder in folders}
    for path, text in {**inits, **files}.items():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return {(finding.path, finding.rule) for finding in floors.check(tmp_path)}


LONG_BODY = "".join(f"    x{i} = {i}\n" for i in range(61))
BAD_SOURCES = {
    "upward": ("artifact/a.py", DOC + "from ninfer.engine import Engine\n", "floor"),
    "sibling": ("models/a.py", DOC + "import ninfer.frontend.stop\n", "floor"),
    "type only": (
        "ops/a.py",
        DOC + "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import ninfer.models.x\n",
        "floor",
    ),
    "in a function": ("ops/dispatch.py", DOC + "def f():\n    import ninfer.cli.run\n", "floor"),
    "via the root": ("ops/a.py", DOC + "from ninfer import Engine\n", "floor"),
    "named by a string": (
        "ops/__init__.py",
        DOC + "__all__ = ['E']\n__getattr__ = f({'E': 'ninfer.engine.engine'})\n",
        "floor",
    ),
    "never": ("runtime/a.py", DOC + "from ninfer.frontend import Frontend\n", "floor"),
    "only": ("fleet/a.py", DOC + "from ninfer.artifact import Artifact\n", "floor"),
    "past the surface": ("models/a.py", DOC + "from ninfer.ops.norm import rmsnorm\n", "surface"),
    "unknown package": ("extras/a.py", DOC, "floor"),
    "torch in frontend": ("frontend/a.py", DOC + "import torch.nn\n", "foreign"),
    "torch in errors": ("errors.py", DOC + "from torch import Tensor\n", "foreign"),
    "triton outside ops": ("models/a.py", DOC + "import triton\n", "foreign"),
    "json in runtime": ("runtime/a.py", DOC + "import json\n", "foreign"),
    "http in engine": ("engine/a.py", DOC + "import fastapi\n", "foreign"),
    "relative": ("ops/a.py", DOC + "from . import b\n", "relative"),
    "lazy": ("engine/a.py", DOC + "def f():\n    import math\n", "lazy"),
    "lazy in a method": (
        "engine/a.py",
        DOC + "class A:\n    def f(self):\n        import math\n",
        "lazy",
    ),
    "dynamic": (
        "engine/a.py",
        DOC + "import importlib\nm = importlib.import_module('x')\n",
        "lazy",
    ),
    "long file": ("ops/a.py", DOC + "x = 1\n" * 400, "size"),
    "long function": ("ops/a.py", DOC + "def f():\n" + LONG_BODY, "size"),
    "no module docstring": ("ops/a.py", "x = 1\n", "docstring"),
    "no opening sentence": ("ops/a.py", '"""Something about"""\n', "docstring"),
    "contract without docstring": (
        "ops/norm/__init__.py",
        DOC + "def f():\n    pass\n",
        "docstring",
    ),
    "logic in an init": ("artifact/__init__.py", DOC + "def f():\n    pass\n", "init"),
    "state in an init": ("artifact/__init__.py", DOC + "cache = {}\n", "init"),
    "no export list": (
        "artifact/__init__.py",
        DOC + "from ninfer.artifact.reader import Artifact\n",
        "init",
    ),
    "incomplete export list": (
        "artifact/__init__.py",
        DOC + "from ninfer.artifact.reader import A, B\n__all__ = ['A']\n",
        "init",
    ),
}


@pytest.mark.parametrize("case", BAD_SOURCES)
def test_bad_source_is_found(case: str, tmp_path: Path):
    path, text, rule = BAD_SOURCES[case]
    found = findings_of(tmp_path, {path: text})
    assert (path, rule) in found
    assert {found_rule for _, found_rule in found} == {rule}


def test_knot_between_two_modules_is_found(tmp_path: Path):
    one = DOC + "from ninfer.engine.two import b\n"
    two = (
        DOC + "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import ninfer.engine.one\n"
    )
    assert findings_of(tmp_path, {"engine/one.py": one, "engine/two.py": two}) == {
        ("engine/one.py", "knot")
    }


def test_folder_without_init_is_found(tmp_path: Path):
    findings_of(tmp_path, {"ops/norm/reference.py": DOC})
    (tmp_path / "ops" / "norm" / "__init__.py").unlink()
    assert [(f.path, f.rule) for f in floors.check(tmp_path)] == [
        ("ops/norm/__init__.py", "package")
    ]


def test_line_budget_and_stale_exceptions_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rules, "LINE_BUDGET", 5)
    monkeypatch.setattr(rules, "LONG_FILES", {"ops/gone.py": "was once long"})
    assert findings_of(tmp_path, {"ops/a.py": DOC + "x = 1\n" * 3}) == {
        ("__init__.py", "budget"),
        ("ops/gone.py", "stale"),
    }


GOOD_SOURCES = {
    "docstring does not count": (
        "ops/a.py",
        DOC + 'def f():\n    """A.\n' + "\n" * 70 + '    """\n',
    ),
    "kernels may be longer": (
        "ops/a.py",
        DOC + "import triton\n@triton.jit\ndef f():\n" + LONG_BODY,
    ),
    "the command line is lazy": ("cli/a.py", DOC + "def f():\n    from ninfer.engine import E\n"),
    "dispatch is lazy": ("ops/dispatch.py", DOC + "def f():\n    import triton\n"),
    "contracts hold functions": (
        "ops/norm/__init__.py",
        DOC + 'def f():\n    """Formula."""\n',
    ),
    "lazy exports": (
        "artifact/__init__.py",
        DOC
        + "from typing import TYPE_CHECKING\n"
        + "if TYPE_CHECKING:\n    from ninfer.artifact.reader import Artifact\n"
        + "__all__ = ['Artifact']\n"
        + "def __getattr__(name):\n    from ninfer.artifact import reader\n"
        + "    return getattr(reader, name)\n",
    ),
}


@pytest.mark.parametrize("case", GOOD_SOURCES)
def test_good_source_passes(case: str, tmp_path: Path):
    path, text = GOOD_SOURCES[case]
    assert findings_of(tmp_path, {path: text}) == set()


def exporting_packages() -> list[str]:
    """Every package of the tree whose `__init__` has an export list."""
    return [
        sources.module_name(source.path)
        for source in sources.load(PACKAGE)
        if source.is_init and "__all__" in source.text
    ]


def test_export_lists_are_importable_and_documented():
    for package in exporting_packages():
        module = importlib.import_module(package)
        assert sorted(set(module.__all__)) == sorted(module.__all__), f"{package}: double entry"
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                doc = value.__doc__ or ""
                generated = doc.startswith(f"{value.__name__}(")
                assert doc and not generated, f"{package}.{name} has no docstring"


def test_every_op_is_exported_by_ops():
    exported = importlib.import_module("ninfer.ops").__all__
    families = [source for source in sources.load(PACKAGE) if source.is_op_contract]
    assert families
    for source in families:
        functions = [node.name for node in source.tree.body if isinstance(node, ast.FunctionDef)]
        public = {name for name in functions if not name.startswith("_")}
        assert public <= set(exported), source.path


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_light_module_loads_without_torch(module: str):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or f"import {module} loads torch"
