"""Pages made from source text alone: the package map, the error table and the op table."""

import ast
from collections import defaultdict
from pathlib import Path

from tools import rules
from tools.markdown import code, first_sentence, page, table
from tools.sources import PACKAGE, Source, load

MAP_BEGIN = "<!-- map:begin (written by `make docs`) -->"
MAP_END = "<!-- map:end -->"


def architecture(root: Path) -> str:
    """docs/architecture.md with its map replaced; the text around the map is kept."""
    text = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(MAP_BEGIN)
    _, _, after = rest.partition(MAP_END)
    return "\n".join([before + MAP_BEGIN, "", *package_map(root), "", MAP_END + after])


def package_map(root: Path) -> list[str]:
    """One table per package, highest floor first, one row per file."""
    files: dict[str, list[Source]] = defaultdict(list)
    for source in load(root / PACKAGE):
        files[source.package if "/" in source.path else ""].append(source)
    order = sorted(files, key=lambda name: (-rules.FLOOR_OF.get(name, -1), name))
    lines: list[str] = []
    for package in order:
        floor = rules.FLOOR_OF.get(package)
        where = f"`{PACKAGE}/{package}/` (floor {floor})" if package else "Root modules"
        lines += [f"### {where}", "", *table(["file", "holds"], map(_map_row, files[package])), ""]
    return lines[:-1]


def _map_row(source: Source) -> tuple[str, str]:
    return code(source.path), first_sentence(ast.get_docstring(source.tree) or "")


def errors(root: Path) -> str:
    """docs/errors.md: the exception tree and what each class means."""
    tree = ast.parse((root / PACKAGE / "errors.py").read_text(encoding="utf-8"))
    drawn = ast.get_docstring(tree) or ""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    rows = [
        (code(node.name), code(ast.unparse(node.bases[0])), ast.get_docstring(node) or "")
        for node in classes
    ]
    body = ["```text", drawn, "```", "", *table(["class", "kind of", "meaning"], rows)]
    return page("Errors", "What `ninfer` raises, from `ninfer/errors.py`.", body)


def ops(root: Path) -> str | None:
    """docs/ops.md: every op contract; None while there are no op families."""
    contracts = [source for source in load(root / PACKAGE) if source.is_op_contract]
    if not contracts:
        return None
    body: list[str] = []
    for source in contracts:
        body += [f"## {source.path.split('/')[1]}", ""]
        body += [first_sentence(ast.get_docstring(source.tree) or "") + ".", ""]
        for node in source.tree.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                body += _op_entry(node)
    intro = (
        "The contract of each op is the function in `ninfer/ops/<family>/__init__.py`; "
        "its docstring there has the whole text."
    )
    return page("Ops", intro, body)


def _op_entry(node: ast.FunctionDef) -> list[str]:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    doc = ast.get_docstring(node) or ""
    paragraph = doc.split("\n\n")[0]
    signature = f"{node.name}({ast.unparse(node.args)}){returns}"
    # Formulas hold stars and brackets that Markdown would take for its own.
    text = ["```text", paragraph, "```"]
    return [f"### {node.name}", "", "```python", signature, "```", "", *text, ""]
