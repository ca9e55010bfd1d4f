"""Checks the source tree of `ninfer` against tools/rules.py by reading its syntax trees.

Run as `python -m tools.floors`; exits 1 and lists findings when a rule is broken.
"""

import ast
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools import rules
from tools.sources import (
    PACKAGE,
    Import,
    Source,
    imports,
    load,
    module_name,
    named_modules,
)

# Imports of an `__init__` that are machinery, not exports.
NOT_EXPORTS = frozenset({f"{PACKAGE}.lazy"})


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A broken rule: where, which, and what was seen."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{PACKAGE}/{self.path}:{self.line}: [{self.rule}] {self.text}"


def targets(item: Import) -> list[str]:
    """Top-level parts of `ninfer` that an import reaches; empty for foreign modules."""
    head, *rest = item.module.split(".")
    if head != PACKAGE:
        return []
    if rest:
        return [rest[0]]
    return [name for name in item.names if name != "__version__"] or ["version"]


def check_floors(source: Source) -> Iterator[Finding]:
    """Imports go to lower floors, and only where the package may look."""
    own = source.package
    if own in ("__init__", "__main__"):
        return
    if own not in rules.FLOOR_OF:
        yield Finding(source.path, 1, "floor", f"{own} has no floor in tools/rules.py")
        return
    for item in (*imports(source.tree), *named_modules(source.tree)):
        for target in targets(item):
            problem = _floor_problem(own, target)
            if problem:
                yield Finding(source.path, item.line, "floor", problem)
            surface = rules.SURFACES.get((own, target))
            if surface is not None and item.module not in surface:
                yield Finding(source.path, item.line, "surface", f"{own} imports {item.module}")


def _floor_problem(own: str, target: str) -> str:
    if target == own:
        return ""
    floor = rules.FLOOR_OF.get(target)
    if floor is None:
        return f"imports {target}, which is no package; import it from the module that defines it"
    if floor >= rules.FLOOR_OF[own]:
        return f"{own} (floor {rules.FLOOR_OF[own]}) imports {target} (floor {floor})"
    if target in rules.NEVER.get(own, frozenset()):
        return f"{own} must not import {target}"
    if own in rules.ONLY and target not in rules.ONLY[own]:
        return f"{own} must not import {target}"
    return ""


def check_foreign(source: Source) -> Iterator[Finding]:
    """Foreign modules stay in the packages that own them; no JSON below the text."""
    for item in imports(source.tree):
        head = item.module.split(".")[0]
        owners = rules.OWNERS.get(head)
        allowed = owners is None or source.package in owners
        if head == "json" and source.package in rules.WITHOUT_JSON:
            allowed = False
        if not allowed and source.path not in rules.FOREIGN_EXCEPTIONS:
            yield Finding(source.path, item.line, "foreign", f"{source.package} imports {head}")


def check_import_style(source: Source) -> Iterator[Finding]:
    """No relative imports; in-function and dynamic imports only in the three allowed places."""
    lazy_home = source.package in rules.LAZY_PACKAGES or source.path in rules.LAZY_FILES
    for item in imports(source.tree):
        if item.relative:
            yield Finding(source.path, item.line, "relative", "relative import")
        lazy_export = source.is_init and item.function == "__getattr__"
        if item.function is not None and not lazy_home and not lazy_export:
            where = item.function or "module level"
            yield Finding(source.path, item.line, "lazy", f"import of {item.module} in {where}")


def check_sizes(source: Source) -> Iterator[Finding]:
    """File and function limits; a docstring does not count against its function."""
    if source.lines > rules.FILE_LIMIT and source.path not in rules.LONG_FILES:
        yield Finding(
            source.path, 1, "size", f"{source.lines} lines; the limit is {rules.FILE_LIMIT}"
        )
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        limit = rules.KERNEL_LIMIT if _is_kernel(node) else rules.FUNCTION_LIMIT
        size = function_lines(node)
        if size > limit and f"{source.path}::{node.name}" not in rules.LONG_FUNCTIONS:
            text = f"{node.name} has {size} lines; the limit is {limit}"
            yield Finding(source.path, node.lineno, "size", text)


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring."""
    total = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node) is not None:
        total -= (first.end_lineno or first.lineno) - first.lineno + 1
    return total


def _is_kernel(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("triton.jit" in ast.unparse(decorator) for decorator in node.decorator_list)


def check_docstrings(source: Source) -> Iterator[Finding]:
    """Each file opens with one sentence; public names of an op contract are documented."""
    doc = ast.get_docstring(source.tree)
    if not doc:
        yield Finding(source.path, 1, "docstring", "the module has no docstring")
    elif not doc.split("\n\n")[0].rstrip().endswith((".", ":")):
        yield Finding(source.path, 1, "docstring", "the module docstring opens with no sentence")
    if source.is_op_contract:
        for node in source.tree.body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
                continue
            if not ast.get_docstring(node):
                yield Finding(source.path, node.lineno, "docstring", f"{node.name} has none")


def check_inits(source: Source) -> Iterator[Finding]:
    """An `__init__` only exports, and its `__all__` names everything it imports publicly."""
    if not source.is_init or source.is_op_contract:
        return
    exported: set[str] | None = None
    imported: set[str] = set()
    for node in source.tree.body:
        if not _only_exports(node):
            yield Finding(source.path, node.lineno, "init", "an __init__ only exports")
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            exported = set(ast.literal_eval(node.value))
        imported |= set(_exported_imports(node))
    if imported and exported is None:
        yield Finding(source.path, 1, "init", "no __all__")
    for name in sorted(imported - (exported or imported)):
        yield Finding(source.path, 1, "init", f"{name} is imported but not in __all__")


def _only_exports(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.FunctionDef):
        return node.name in ("__getattr__", "__dir__")
    if isinstance(node, ast.Assign | ast.AnnAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        return ast.unparse(target).startswith("_")  # __all__, __getattr__, a private table
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING" and all(map(_only_exports, node.body))
    return False


def _exported_imports(node: ast.stmt) -> Iterator[str]:
    """Public names that an export statement brings in from this package."""
    if isinstance(node, ast.If):
        for inner in node.body:
            yield from _exported_imports(inner)
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
        if node.module in NOT_EXPORTS:
            return
        for alias in node.names:
            name = alias.asname or alias.name
            if not name.startswith("_"):
                yield name


def check_knots(sources: list[Source]) -> Iterator[Finding]:
    """No two modules reach each other through imports, type-only ones included."""
    paths = {module_name(source.path): source.path for source in sources}
    graph = {module_name(source.path): _edges(source, paths) for source in sources}
    seen: set[str] = set()
    for start in sorted(graph):
        cycle = _cycle(start, graph, seen)
        if cycle:
            yield Finding(paths[cycle[0]], 1, "knot", " -> ".join([*cycle, cycle[0]]))


def _edges(source: Source, modules: Collection[str]) -> set[str]:
    """Modules that this one imports; dispatch and lazy exports look names up at call time."""
    found: set[str] = set()
    for item in imports(source.tree):
        if item.function is not None:
            continue
        inner = {f"{item.module}.{name}" for name in item.names}
        found |= inner & set(modules)
        if not inner or inner - set(modules):
            found.add(item.module)
    return found - {module_name(source.path)}


def _cycle(start: str, graph: dict[str, set[str]], seen: set[str]) -> list[str]:
    """First cycle found by depth-first search from `start`, as a list of modules."""
    trail: list[str] = []

    def visit(module: str) -> list[str]:
        if module in trail:
            return trail[trail.index(module) :]
        if module in seen or module not in graph:
            return []
        trail.append(module)
        for target in sorted(graph[module]):
            found = visit(target)
            if found:
                return found
        trail.pop()
        seen.add(module)
        return []

    cycle = visit(start)
    seen.update(trail)
    return cycle


def check_packages(sources: list[Source]) -> Iterator[Finding]:
    """Every folder with code is a package: a folder without `__init__.py` misses the wheel."""
    paths = {source.path for source in sources}
    for folder in sorted({path.rpartition("/")[0] for path in paths}):
        init = f"{folder}/__init__.py".lstrip("/")
        if init not in paths:
            yield Finding(init, 1, "package", "missing; the wheel would leave the folder out")


def check_budget(sources: list[Source]) -> Iterator[Finding]:
    """The whole package stays within its line budget, and no listed exception is stale."""
    total = sum(source.lines for source in sources)
    if total > rules.LINE_BUDGET:
        yield Finding("__init__.py", 1, "budget", f"{total} lines; budget {rules.LINE_BUDGET}")
    by_path = {source.path: source for source in sources}
    for path in rules.LONG_FILES:
        if path not in by_path or by_path[path].lines <= rules.FILE_LIMIT:
            yield Finding(path, 1, "stale", "listed in LONG_FILES without need")
    for path in rules.FOREIGN_EXCEPTIONS:
        if path not in by_path:
            yield Finding(path, 1, "stale", "listed in FOREIGN_EXCEPTIONS without need")


FILE_CHECKS: tuple[Callable[[Source], Iterator[Finding]], ...] = (
    check_floors,
    check_foreign,
    check_import_style,
    check_sizes,
    check_docstrings,
    check_inits,
)

TREE_CHECKS: tuple[Callable[[list[Source]], Iterator[Finding]], ...] = (
    check_knots,
    check_packages,
    check_budget,
)


def check(root: Path) -> list[Finding]:
    """Every broken rule below `root`, the package folder."""
    sources = load(root)
    findings = [finding for source in sources for rule in FILE_CHECKS for finding in rule(source)]
    for tree_rule in TREE_CHECKS:
        findings.extend(tree_rule(sources))
    return sorted(findings)


def main() -> int:
    """Print findings and the line total; 1 when a rule is broken."""
    root = Path(__file__).resolve().parent.parent / PACKAGE
    findings = check(root)
    for finding in findings:
        print(finding)
    sizes = sorted(source.lines for source in load(root))
    print(
        f"{PACKAGE}/: {len(sizes)} files, {sum(sizes)} of {rules.LINE_BUDGET} lines, "
        f"median {sizes[len(sizes) // 2]}, largest {sizes[-1]}; {len(findings)} findings"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
