"""JSON with comments and trailing commas, read with the place of every value."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from ninfer.errors import ClientConfigError

# White space and comments; an unclosed block comment does not match and fails as a value would.
_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORD: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_DEEPEST: Final = 200


@dataclass(slots=True)
class Node:
    """A value of the text: `text[start:end]`. `entries` are those of an object or an array.

    `comma` is the place of the comma behind the last entry, if there is one.
    """

    start: int
    end: int
    value: Any
    members: dict[str, "Node"] = field(default_factory=dict)
    items: "list[Node]" = field(default_factory=list)
    comma: int | None = None

    @property
    def entries(self) -> "list[Node]":
        """The nodes inside, in their order."""
        return self.items or list(self.members.values())


def parse(text: str, where: str) -> Node:
    """The root value. Raises ClientConfigError naming `where`, line and column."""
    return _Reader(text, where).document()


def skip_blank(text: str, place: int) -> int:
    """The first place from `place` on that is neither white space nor part of a comment."""
    found = _BLANK.match(text, place)
    assert found is not None  # the pattern matches nothing as well
    return found.end()


class _Reader:
    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where

    def document(self) -> Node:
        node = self._value(skip_blank(self._text, 0), 0)
        end = skip_blank(self._text, node.end)
        if end < len(self._text):
            self._fail(end, "text behind the value")
        return node

    def _value(self, at: int, depth: int) -> Node:
        if depth > _DEEPEST:
            self._fail(at, "nested too deeply")
        start = self._text[at : at + 1]
        if start == "{":
            return self._object(at, depth)
        if start == "[":
            return self._array(at, depth)
        if start == '"':
            text, end = self._string(at)
            return Node(at, end, text)
        word = _WORD.match(self._text, at)
        if word is None:
            self._fail(at, "a value is missing" if start in ("", ",", "}", "]") else "not JSON")
        return Node(at, word.end(), json.loads(word[0]))

    def _string(self, at: int) -> tuple[str, int]:
        found = _STRING.match(self._text, at)
        if found is None:
            self._fail(at, "a string is missing or does not end")
        try:
            return json.loads(found[0]), found.end()
        except ValueError:
            self._fail(at, "a string has an unknown escape")

    def _object(self, at: int, depth: int) -> Node:
        node = Node(at, at, {})
        for place in self._places(node, "}"):
            name, end = self._string(place)
            if name in node.members:
                self._fail(place, f"member {name!r} stands twice in one object")
            colon = skip_blank(self._text, end)
            if self._text[colon : colon + 1] != ":":
                self._fail(colon, f"no colon behind {name!r}")
            inner = self._value(skip_blank(self._text, colon + 1), depth + 1)
            node.members[name] = inner
            node.value[name] = inner.value
            node.end = inner.end
        return node

    def _array(self, at: int, depth: int) -> Node:
        node = Node(at, at, [])
        for place in self._places(node, "]"):
            inner = self._value(place, depth + 1)
            node.items.append(inner)
            node.value.append(inner.value)
            node.end = inner.end
        return node

    def _places(self, node: Node, closer: str) -> Iterator[int]:
        """Where each entry of the node starts; the caller moves `node.end` behind the entry."""
        place = skip_blank(self._text, node.start + 1)
        while self._text[place : place + 1] != closer:
            yield place
            place = skip_blank(self._text, node.end)
            node.comma = place if self._text[place : place + 1] == "," else None
            if node.comma is not None:
                place = skip_blank(self._text, place + 1)
            elif self._text[place : place + 1] != closer:
                self._fail(place, f"a comma or {closer!r} is missing")
        node.end = place + 1

    def _fail(self, at: int, reason: str) -> NoReturn:
        line = self._text.count("\n", 0, at) + 1
        column = at - (self._text.rfind("\n", 0, at) + 1) + 1
        raise ClientConfigError(
            f"{self._where}:{line}:{column}: {reason}; mend the file or move it away"
        )
