"""Contracts of answers: from the `contract` object of a fixture to a function that checks a text.

| kind | kept when |
| --- | --- |
| `jsonl`, `csv`, `inserts` | records of `fields`, `count`, `table` as `parse_contract` reads them |
| `sql` | the script runs in SQLite; `tables`, `views` and `queries` are as they should be |
| `code` | all `files` are there and compile or parse; the tests in `run` pass in a sandbox |
| `markdown` | `headings`, `table`, `json`, `keep`, `glossary` are as they should be |
| `story` | `parts` with `mark`, `characters`, `words`, `ending` |
| `answer` | the final answer is `value` |
| `needle` | `answer` was found |
| `language` | `share` of the letters are of the script of `language` |
| `text` | `equals`, `contains`, `any_of`, `absent` |
| `all` | every contract in `of` is kept |
| `graded` | somebody else found it `right`; `reasons` say why not |

Unknown members are refused.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ninfer.audit.contracts import markdown, prose
from ninfer.audit.contracts.code import code
from ninfer.audit.contracts.csv import check_csv
from ninfer.audit.contracts.fences import only_block
from ninfer.audit.contracts.jsonl import check_jsonl
from ninfer.audit.contracts.parameters import Parameters
from ninfer.audit.contracts.prose import Check
from ninfer.audit.contracts.records import (
    ContractCheck,
    RecordContract,
    parse_contract,
    shortened,
)
from ninfer.audit.contracts.sql import check_sql
from ninfer.audit.contracts.sql_script import sql_script
from ninfer.errors import UsageError


def _records(
    checker: Callable[[str, RecordContract], ContractCheck], languages: tuple[str, ...]
) -> Callable[[Parameters], Check]:
    """Records that are the whole text, or with `fenced` the one block of these languages."""

    def build(parameters: Parameters) -> Check:
        fenced = parameters.flag("fenced", False)
        contract = parse_contract(parameters.rest("fields", "count", "table"), parameters.where)

        def check(text: str) -> ContractCheck:
            return checker(only_block(text, languages) if fenced else text, contract)

        return check

    return build


def _all(parameters: Parameters) -> Check:
    parts = parameters.value("of", list)
    checks = [parse_check(part, f"{parameters.where}.of[{n}]") for n, part in enumerate(parts)]

    def check(text: str) -> ContractCheck:
        found = [one(text) for one in checks]
        counted = next((one for one in found if one.wanted is not None), ContractCheck(()))
        return ContractCheck(
            shortened([reason for one in found for reason in one.reasons]),
            tuple(row for one in found for row in one.rows),
            valid=counted.valid,
            wanted=counted.wanted,
            notes=tuple(note for one in found for note in one.notes),
        )

    return check


def _graded(parameters: Parameters) -> Check:
    right, reasons = parameters.flag("right", False), parameters.texts("reasons", ())
    found = ContractCheck(() if right else reasons or ("graded wrong",), notes=("graded before",))
    return lambda text: found


KINDS: Final[Mapping[str, Callable[[Parameters], Check]]] = {
    "jsonl": _records(check_jsonl, ("jsonl", "json", "ndjson")),
    "csv": _records(check_csv, ("csv",)),
    "inserts": _records(check_sql, ("sql",)),
    "sql": sql_script,
    "code": code,
    "markdown": markdown.markdown,
    "story": prose.story,
    "answer": prose.answer,
    "needle": prose.needle,
    "language": prose.language,
    "text": prose.text,
    "all": _all,
    "graded": _graded,
}


def parse_check(values: Any, where: str) -> Check:
    """The check that a contract object asks for. Raises UsageError naming the wrong member."""
    if not isinstance(values, Mapping):
        raise UsageError(f"{where}: {values!r} must be an object with a kind")
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise UsageError(f"{where}.kind: {kind!r} must be one of {', '.join(KINDS)}")
    parameters = Parameters(values, where)
    check = KINDS[kind](parameters)
    parameters.done()
    return check
