"""Balanced brackets of C++ and TypeScript: what a text that was cut off, or lost a line, breaks."""

import re
from typing import Final

# Comments, then texts of all kinds, then what opens and closes. A slash begins a regular expression
# only where no value can stand before it.
_TOKEN: Final = re.compile(
    r"//[^\n]*|/\*.*?\*/"
    r'|R"(?P<raw>[^()\\\s]{0,16})\(.*?\)(?P=raw)"'
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'(?:[^'\\\n]|\\.)*'"
    r"|(?P<open>/\*)|(?P<quote>[\"'])"
    r"|(?P<mark>[(){}\[\]])|(?P<tick>`)|(?P<slash>/)|\\.",
    re.DOTALL,
)
_PATTERN: Final = re.compile(r"/(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*")
_VALUE_BEFORE: Final = re.compile(r"[\w)\]}\"'`]\s*\Z")
_KEYWORD_BEFORE: Final = re.compile(r"\b(?:return|typeof|case|in|of|delete|void|throw)\s*\Z")
_PAIRS: Final = {")": "(", "]": "[", "}": "{"}
_TICK_END: Final = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*", re.DOTALL)


def unbalanced(text: str, *, templates: bool = False) -> str:
    """What is not closed or never opened, with its line; "" when all is well.

    `templates` are TypeScript's texts between back quotes, which may hold code in ${}.
    """
    stack: list[tuple[str, int]] = []
    place = 0
    while True:
        match = _TOKEN.search(text, place)
        if match is None:
            break
        place = match.end()
        kind, mark, at = match.lastgroup, match[0], match.start()
        if kind in ("open", "quote"):
            # An apostrophe inside a number of C++, 1'000, opens nothing.
            if mark == "'" and text[at - 1 : at].isalnum() and text[place : place + 1].isalnum():
                continue
            return f"line {_line(text, at)}: {mark} is not closed"
        if kind == "slash" and templates and not _is_division(text, at):
            pattern = _PATTERN.match(text, at)
            place = pattern.end() if pattern else place
        elif kind == "tick" and templates:
            place = _template(text, place)
            stack.append(("`", at))
            if text[place : place + 1] == "`":
                stack.pop()
                place += 1
            else:
                stack.append(("{", place))
                place += 2
        elif kind == "mark" and mark in "([{":
            stack.append((mark, at))
        elif kind == "mark":
            if not stack or stack[-1][0] != _PAIRS[mark]:
                return f"line {_line(text, at)}: {mark} closes nothing"
            stack.pop()
            if mark == "}" and stack and stack[-1][0] == "`":
                place = _template(text, place)
                if text[place : place + 1] == "`":
                    stack.pop()
                    place += 1
                else:
                    stack.append(("{", place))
                    place += 2
        if place > len(text):
            break
    if stack:
        return f"line {_line(text, stack[-1][1])}: {stack[-1][0]} is not closed"
    return ""


def _template(text: str, place: int) -> int:
    """Where the text between back quotes stops: at its end or before ${."""
    match = _TICK_END.match(text, place)
    assert match is not None
    return match.end()


def _is_division(text: str, at: int) -> bool:
    before = text[max(0, at - 40) : at]
    return bool(_VALUE_BEFORE.search(before)) and not _KEYWORD_BEFORE.search(before)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
