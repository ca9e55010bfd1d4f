"""The package's files as syntax trees, and every import that they make."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "ninfer"
MODULE_NAME = re.compile(rf"{PACKAGE}(\.[a-z_0-9]+)+")


@dataclass(frozen=True)
class Source:
    """One parsed file; `path` is relative to the package folder, with forward slashes."""

    path: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def package(self) -> str:
        """Top-level part of the tree that the file belongs to: `ops`, `errors`, ..."""
        return self.path.split("/")[0].removesuffix(".py")

    @property
    def is_init(self) -> bool:
        return self.path.endswith("__init__.py")

    @property
    def is_op_contract(self) -> bool:
        """True for `ops/<family>/__init__.py`, which holds functions by design."""
        parts = self.path.split("/")
        return len(parts) == 3 and parts[0] == "ops" and self.is_init


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, and whether the statement stands inside a function."""

    module: str
    names: tuple[str, ...]
    line: int
    function: str | None
    relative: bool


def load(root: Path) -> list[Source]:
    """Parse every Python file below `root`, the package folder."""
    sources = []
    for file in sorted(root.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        path = file.relative_to(root).as_posix()
        sources.append(Source(path, text, ast.parse(text, filename=path)))
    return sources


def imports(tree: ast.AST, function: str | None = None) -> Iterator[Import]:
    """All import statements, including type-only ones and those inside functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, (), node.lineno, function, False)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            yield Import(node.module or "", names, node.lineno, function, node.level > 0)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imports(node, function or node.name)
        else:
            if isinstance(node, ast.Call) and _is_dynamic_import(node):
                yield Import("(dynamic)", (), node.lineno, function or "", False)
            yield from imports(node, function)


def named_modules(tree: ast.AST) -> Iterator[Import]:
    """Modules of the package that a string names, as tables of lazy exports do."""
    for node in ast.walk(tree):
        value = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and MODULE_NAME.fullmatch(value):
            yield Import(value, (), getattr(node, "lineno", 0), None, False)


def _is_dynamic_import(node: ast.Call) -> bool:
    """True for `importlib.import_module(...)` and `__import__(...)`."""
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in ("import_module", "__import__")


def module_name(path: str) -> str:
    """`ops/norm/__init__.py` -> `ninfer.ops.norm`."""
    parts = path.removesuffix(".py").split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join([PACKAGE, *parts])
