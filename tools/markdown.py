"""Small pieces of Markdown that the generated pages share."""

from collections.abc import Iterable, Sequence

NOTICE = "<!-- Written by `make docs`; edit the source that it describes instead. -->"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table; cells are put on one line and their bars escaped."""
    lines = [_row(head), _row(["---"] * len(head))]
    lines.extend(_row(row) for row in rows)
    return lines


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def code(text: str) -> str:
    """Inline code, or nothing for empty text."""
    return f"`{text}`" if text else ""


def first_sentence(doc: str) -> str:
    """The opening paragraph of a docstring on one line, without its final full stop."""
    return " ".join(doc.split("\n\n")[0].split()).removesuffix(".").removesuffix(":")


def page(title: str, intro: str, body: Iterable[str]) -> str:
    """A whole generated page."""
    return "\n".join([NOTICE, "", f"# {title}", "", intro, "", *body]).rstrip() + "\n"
