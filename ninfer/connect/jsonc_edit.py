"""Edits of a JSONC text in place: only what has to change does, comments and order stay."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from ninfer.connect.edits import Edit, Match, Path, nested, path_text
from ninfer.connect.jsonc import Node, parse
from ninfer.errors import ClientConfigError

_INDENT: Final = re.compile(r"^([ \t]+)\S", re.MULTILINE)
# What may follow an entry on its line and belongs to it.
_SAME_LINE: Final = re.compile(r"(?:[ \t]+|/\*[^\r\n]*?\*/)*(?://[^\r\n]*)?")


def amend(text: str, edits: Sequence[Edit], where: str) -> str:
    """The text with all edits made; equal to `text` when they hold already.

    Raises ClientConfigError naming `where` for text that is not JSONC, or when a member on a path
    is no object or array as the client expects it.
    """
    if not text.strip():
        text = "{}\n"
    for edit in edits:
        text = _set(text, edit, where)
    return text


def _set(text: str, edit: Edit, where: str) -> str:
    node = parse(text, where)
    for depth, step in enumerate(edit.path):
        _check_kind(node, step, edit.path[:depth], where)
        found = _child(node, step)
        if found is None:
            return _insert(text, node, edit.path[depth:], edit.value)
        node = found
    if edit.only_if_absent or _same(node.value, edit.value):
        return text
    rendered = _render(text, edit.value, _line_indent(text, node.start))
    return text[: node.start] + rendered + text[node.end :]


def _same(one: object, other: object) -> bool:
    """Equal as JSON: Python also takes 1, 1.0 and true for the same."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _check_kind(node: Node, step: str | Match, path: Path, where: str) -> None:
    wanted, word = (list, "an array") if isinstance(step, Match) else (dict, "an object")
    if not isinstance(node.value, wanted):
        name = path_text(path) or "the file"
        raise ClientConfigError(
            f"{where}: {name} is {_kind(node.value)}, not {word}; mend it, or remove it and try "
            "again"
        )


def _kind(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a truth value"}
    return "null" if value is None else names.get(type(value), "a number")


def _child(node: Node, step: str | Match) -> Node | None:
    if isinstance(step, str):
        return node.members.get(step)
    return next((item for item in node.items if step.holds(item.value)), None)


def _insert(text: str, node: Node, path: Path, value: Any) -> str:
    """Add the entry that the path leads to behind the last one of `node`."""
    step, rest = path[0], path[1:]
    outer = _line_indent(text, node.start)
    entries = node.entries
    inner = outer + _unit(text)
    if entries and _starts_line(text, node):
        inner = _line_indent(text, _first_start(text, node))
    value = nested(rest, value)
    if isinstance(step, str):
        entry = json.dumps(step, ensure_ascii=False) + ": " + _render(text, value, inner)
    else:
        entry = _render(text, nested((step,), value)[0], inner)
    new = _newline(text)
    closer = node.end - 1
    if not entries:
        # Comments in an empty container stay before the entry.
        inside = text[node.start + 1 : closer].rstrip(" \t\r\n")
        return f"{text[: node.start + 1]}{inside}{new}{inner}{entry}{new}{outer}{text[closer:]}"
    last = entries[-1].end
    behind = last if node.comma is None else node.comma + 1
    rest_of_line = _SAME_LINE.match(text, behind)
    assert rest_of_line is not None
    place = min(rest_of_line.end(), closer)
    comma = "," if node.comma is None else ""
    head = text[:last] + comma + text[last:place].rstrip(" \t")
    tail = text[place:]
    kept = "" if node.comma is None else ","  # who ends lists with commas keeps doing so
    if not tail.lstrip(" \t").startswith(("\n", "\r")):
        tail = new + outer + tail.lstrip(" \t")
    return f"{head}{new}{inner}{entry}{kept}{tail}"


def _render(text: str, value: Any, indent: str) -> str:
    lines = json.dumps(value, indent=_unit(text), ensure_ascii=False).split("\n")
    return (_newline(text) + indent).join(lines)


def _unit(text: str) -> str:
    found = _INDENT.search(text)
    return found[1] if found else "  "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_indent(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _first_start(text: str, node: Node) -> int:
    """Where the first entry starts: for an object the member's name."""
    first = node.entries[0].start
    if not node.members:
        return first
    name = json.dumps(next(iter(node.members)), ensure_ascii=False)
    found = text.rfind(name, node.start, first)
    return first if found < 0 else found  # a name written with escapes


def _starts_line(text: str, node: Node) -> bool:
    line = text[text.rfind("\n", 0, _first_start(text, node)) + 1 : _first_start(text, node)]
    return not line.strip() and "\n" in text[node.start : _first_start(text, node)]
