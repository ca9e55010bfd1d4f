"""Markdown: headings, tables, fenced JSON, identifiers that must survive, a glossary."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ninfer.audit.contracts.fences import fences_of, without_fences
from ninfer.audit.contracts.parameters import Parameters
from ninfer.audit.contracts.prose import Check, shown
from ninfer.audit.contracts.records import ContractCheck, shortened
from ninfer.errors import UsageError

_HEADING: Final = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)
_ENTRY: Final = re.compile(
    r"^\s*(?:[-*+]|[0-9]+[.)])\s+\S.*?(?:[:：]|\s[-–—]\s)\s*\S", re.MULTILINE
)
_RULE: Final = re.compile(r"^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")


def markdown(parameters: Parameters) -> Check:
    """A document: `headings` in this order, `heading_count` of them, a `table`, and more.

    `table` is an object with `columns`, `rows` (the fewest) and `header` texts; `json` the members
    of an object in a closed ```json block; `keep` texts that stand in it word for word; `glossary`
    the fewest entries of a list or table under a heading with one of `glossary_heading`.
    """
    headings = parameters.texts("headings", ())
    count = parameters.count("heading_count", None)
    table = parameters.value("table", dict, None)
    members = parameters.texts("json", ())
    keep = parameters.texts("keep", ())
    glossary = parameters.count("glossary", 0)
    titles = parameters.texts("glossary_heading", ("Glossary", "术语"))
    if table is not None and not set(table) <= {"columns", "rows", "header"}:
        raise UsageError(f"{parameters.where}.table: takes columns, rows and header")

    def check(text: str) -> ContractCheck:
        outside = without_fences(text)
        found = [match[2].strip(" *") for match in _HEADING.finditer(outside)]
        reasons = list(_headings(headings, count, found))
        if table is not None:
            reasons += _table(table, list(tables_of(outside)))
        if members:
            reasons += _fenced_json(members, text)
        reasons += [f"{shown(word)} is missing" for word in keep if word not in text]
        if glossary:
            reasons += _glossary(glossary, titles, outside)
        return ContractCheck(shortened(reasons))

    return check


def _headings(wanted: tuple[str, ...], count: int | None, found: list[str]) -> Iterator[str]:
    place = 0
    for title in wanted:
        try:
            place = next(n for n in range(place, len(found)) if title in found[n]) + 1
        except StopIteration:
            where = "out of order" if any(title in one for one in found) else "missing"
            yield f"heading {shown(title)} is {where}"
    if count is not None and len(found) != count:
        yield f"{len(found)} headings in place of {count}"


def tables_of(text: str) -> Iterator[list[list[str]]]:
    """Tables as rows of cells, the header first, without the rule below it."""
    lines = text.split("\n")
    number = 0
    while number + 1 < len(lines):
        if "|" in lines[number] and _RULE.match(lines[number + 1]) and "-" in lines[number + 1]:
            rows = [_cells(lines[number])]
            number += 2
            while number < len(lines) and "|" in lines[number]:
                rows.append(_cells(lines[number]))
                number += 1
            yield rows
        number += 1


def _cells(line: str) -> list[str]:
    bare = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", bare)]


def _table(wanted: Mapping[str, Any], tables: list[list[list[str]]]) -> Iterator[str]:
    if not tables:
        yield "no table"
        return
    rows = max(tables, key=len)
    columns, least = wanted.get("columns"), wanted.get("rows", 1)
    if columns is not None and len(rows[0]) != columns:
        yield f"the table has {len(rows[0])} columns in place of {columns}"
    if len(rows) - 1 < least:
        yield f"the table has {len(rows) - 1} rows, not {least}"
    wrong = [n for n, row in enumerate(rows[1:], 1) if len(row) != len(rows[0])]
    if wrong:
        yield f"row {wrong[0]} of the table has {len(rows[wrong[0]])} cells of {len(rows[0])}"
    for name in wanted.get("header", ()):
        if name not in rows[0]:
            yield f"the table has no column {name!r}"


def _fenced_json(members: tuple[str, ...], text: str) -> Iterator[str]:
    blocks = [fence for fence in fences_of(text) if fence.language == "json"]
    if not blocks:
        yield "no ```json block"
        return
    problem = ""
    for block in blocks:
        try:
            value = json.loads(block.body)
        except (ValueError, RecursionError) as error:
            problem = f"the ```json block is no JSON: {error}"
            continue
        missing = [m for m in members if not isinstance(value, dict) or m not in value]
        if not missing:
            return
        problem = f"the ```json block lacks {', '.join(missing)}"
    yield problem


def _glossary(least: int, titles: tuple[str, ...], text: str) -> Iterator[str]:
    matches = list(_HEADING.finditer(text))
    for number, match in enumerate(matches):
        if any(title.casefold() in match[2].casefold() for title in titles):
            end = matches[number + 1].start() if number + 1 < len(matches) else len(text)
            body = text[match.end() : end]
            entries = len(_ENTRY.findall(body)) + sum(len(rows) - 1 for rows in tables_of(body))
            if entries < least:
                yield f"the glossary has {entries} entries, not {least}"
            return
    yield "no glossary"
