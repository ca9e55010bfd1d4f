"""Record contracts: kept ones pass; each way of breaking one is named."""

from typing import Any

import pytest

from ninfer.audit.contracts import (
    RecordContract,
    check_csv,
    check_jsonl,
    check_sql,
    count_units,
    parse_contract,
)
from ninfer.errors import UsageError

FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "integer", "unique": True, "least": 1, "most": 99},
    {"name": "name", "type": "string"},
    {"name": "price", "type": "number"},
    {"name": "sold", "type": "boolean"},
]


def contract(count: int | None = 2, **changes: Any) -> RecordContract:
    return parse_contract({"fields": FIELDS, "count": count, **changes}, "grade")


JSONL = (
    '{"id": 1, "name": "a, \\"b\\"", "price": 2, "sold": true}\n'
    '{"sold": false, "id": 2, "name": "", "price": 1.5}'
)
CSV = 'id,name,price,sold\n1,"a, ""b""",2,true\n2,plain,1.5,false'
SQL = (
    "INSERT INTO items (id, name, price, sold) VALUES (1, 'it''s, (a); b', 2, TRUE),\n"
    "(2, '', 1.5, false);\n"
    "insert into items (sold, price, name, id) values (true, -1e2, '--', 3);"
)


def test_a_kept_contract_gives_the_records() -> None:
    found = check_jsonl(f"\n{JSONL}\n", contract())
    assert found.ok
    assert found.rows[0] == {"id": 1, "name": 'a, "b"', "price": 2, "sold": True}
    found = check_csv(CSV.replace("\n", "\r\n") + "\r\n", contract())
    assert found.ok
    assert found.rows == (
        {"id": 1, "name": 'a, "b"', "price": 2, "sold": True},
        {"id": 2, "name": "plain", "price": 1.5, "sold": False},
    )
    found = check_sql(SQL, contract(3, table="items"))
    assert found.ok
    assert [row["name"] for row in found.rows] == ["it's, (a); b", "", "--"]
    assert found.rows[2]["price"] == -100


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the answer is empty"),
        (f"```jsonl\n{JSONL}\n```", "a code fence stands around"),
        (f"Here you are:\n{JSONL}", "line 1: not JSON"),
        (f"{JSONL}\nDone.", "line 3: not JSON"),
        (JSONL.replace("\n", "\n\n"), "line 2: empty"),
        (JSONL.split("\n")[0], "1 records in place of 2"),
        (f'{JSONL}\n{{"id": 3, "name": "c", "price": 1, "sold": true}}', "3 records in place of 2"),
        (JSONL.replace("true}", "true,}"), "line 1: not JSON"),
        ("[" + JSONL.replace("\n", ",\n") + "]", "line 1: not JSON"),
        (JSONL.replace('"id": 1', '"id": "1"'), "id is '1', which is no integer"),
        (JSONL.replace('"id": 1', '"id": 1.0'), "id is 1.0, which is no integer"),
        (JSONL.replace('"id": 1', '"id": true'), "id is True, which is no integer"),
        (JSONL.replace('"id": 1', '"id": null'), "id is None, which is no integer"),
        (JSONL.replace('"price": 2', '"price": true'), "price is True, which is no number"),
        (JSONL.replace('"price": 2', '"price": NaN'), "line 1: not JSON: NaN"),
        (JSONL.replace('"price": 2', '"price": 1e999'), "price is inf, which is no number"),
        (JSONL.replace('"sold": true', '"sold": 1'), "sold is 1, which is no boolean"),
        (JSONL.replace('"sold": true', '"sold": true, "x": 1'), "field 'x' was not asked for"),
        (JSONL.replace('"id": 1', '"ID": 1'), "field 'id' is missing"),
        (JSONL.replace('"id": 1', '"id": 1, "id": 1'), "stands twice in one object"),
        (JSONL.replace('"id": 2', '"id": 1'), "line 2: id 1 stands twice"),
        (JSONL.replace('"id": 2', '"id": 100'), "id is 100, above 99"),
        (JSONL.replace('"id": 2', '"id": 0'), "id is 0, below 1"),
        ("[1, 2]\n3", "line 1: no object"),
        ("[" * 100_000, "line 1: not JSON"),
    ],
)
def test_broken_jsonl(text: str, reason: str) -> None:
    found = check_jsonl(text, contract())
    assert not found.ok
    assert any(reason in line for line in found.reasons), found.reasons


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"```csv\n{CSV}\n```", "a code fence stands around"),
        (CSV.split("\n", 1)[1], "the header is ['1', "),
        (CSV.replace("id,name", "name,id", 1), "the header is ['name', 'id', "),
        (CSV.replace("id,name", "id, name", 1), "the header is ['id', ' name', "),
        (CSV + "\n", None),
        (CSV + "\n\n3,c,1,true", "record 3: 1 cells in place of 4"),
        (CSV + "\nThat is all.", "record 3: 1 cells in place of 4"),
        (CSV + "\n3,c,1,true", "3 records in place of 2"),
        (CSV.replace("plain", "pl,ain"), "record 2: 5 cells in place of 4"),
        (CSV.replace("plain", 'pl"ain'), "line 3: a quote is not closed, or not doubled"),
        (CSV.replace("plain", '"plain'), "line 3: a quote is not closed"),
        (CSV.replace('""b""', '"b"'), "line 2: a quote is not closed, or not doubled"),
        (CSV.replace("1.5,false", "1.5,false,"), "record 2: 5 cells in place of 4"),
        (CSV.replace(",true", ",True"), "sold is 'True', which is no boolean"),
        (CSV.replace("\n2,", "\n2.0,"), "id is '2.0', which is no integer"),
        (CSV.replace("\n2,", "\n 2,"), "id is ' 2', which is no integer"),
        (CSV.replace("1.5", "1,5"), "record 2: 5 cells in place of 4"),
        (CSV.replace("1.5", "nan"), "price is 'nan', which is no number"),
        (CSV.replace("1.5", ""), "price is '', which is no number"),
        ("id,name,price,sold", "0 records in place of 2"),
    ],
)
def test_broken_csv(text: str, reason: str | None) -> None:
    found = check_csv(text, contract())
    assert found.ok == (reason is None)
    assert reason is None or any(reason in line for line in found.reasons), found.reasons


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"```sql\n{SQL}\n```", "a code fence stands around"),
        (SQL.replace("''s", "'s"), "cannot be read from"),
        (SQL.replace("''s", "\\'s"), "cannot be read from"),
        (SQL[:-1], "the last statement has no end"),
        (SQL + " -- done", "cannot be read from '-- done' on"),
        (SQL + "\nDROP TABLE items;", "'DROP' stands where INSERT belongs"),
        (SQL.replace("INTO items", "INTO goods"), "the table is 'goods', not 'items'"),
        (SQL.replace("(1, ", "(1, 1, ", 1), "5 values for 4 columns"),
        (SQL.replace("(id, name,", "(id, id,"), "a column is named twice"),
        (SQL.replace("(id, name, price, sold)", ""), "stands where one of '(' belongs"),
        (SQL.replace("TRUE", "1"), "sold is 1, which is no boolean"),
        (SQL.replace("TRUE", "'true'"), "sold is 'true', which is no boolean"),
        (SQL.replace("(1, ", "('1', "), "id is '1', which is no integer"),
        (SQL.replace("(1, ", "(1.0, "), "id is 1.0, which is no integer"),
        (SQL.replace("1.5", "NULL"), "price is None, which is no number"),
        (SQL.replace("1.5", "1 + 0.5"), "cannot be read from '+ 0.5"),
        (SQL.replace("1.5", "abs(1)"), "'abs' is no literal"),
        (SQL.replace("'', 1.5", '"", 1.5'), "cannot be read from"),
        (SQL.replace("TRUE),", "TRUE),,"), "stands where one of '(' belongs"),
        (SQL.replace("false);", "false),;"), "stands where one of '(' belongs"),
        (SQL.rsplit("\n", 1)[0], "2 records in place of 3"),
        ("'" * 1001, "cannot be read from"),
    ],
)
def test_broken_sql(text: str, reason: str) -> None:
    found = check_sql(text, contract(3, table="items"))
    assert not found.ok
    assert any(reason in line for line in found.reasons), found.reasons


def test_null_dates_and_choices() -> None:
    fields = [
        {"name": "day", "type": "date"},
        {"name": "size", "type": "string", "choices": ["S", "M"], "nullable": True},
    ]
    asked = parse_contract({"fields": fields}, "grade")
    assert check_csv("day,size\n2026-02-28,S\n2026-03-01,", asked).ok
    assert check_jsonl('{"day": "2026-02-28", "size": null}', asked).ok
    for line, reason in (
        ('{"day": "2026-02-30", "size": "S"}', "day is '2026-02-30', which is no date"),
        ('{"day": "20260228", "size": "S"}', "which is no date"),
        ('{"day": "2026-02-28", "size": "L"}', "size is 'L', which is none of the choices"),
        ('{"day": null, "size": "S"}', "day is None, which is no date"),
    ):
        found = check_jsonl(line, asked)
        assert len(found.reasons) == 1 and reason in found.reasons[0]


def test_reasons_of_a_wholly_broken_answer_are_cut() -> None:
    found = check_jsonl("\n".join(["x"] * 100), contract())
    assert len(found.reasons) == 8 and found.reasons[-1] == "and 94 more"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fields": []}, "grade.fields: must be a list with at least one field"),
        ({"fields": [{"name": "a", "type": "float"}]}, "fields[0].type: 'float' must be one of"),
        ({"fields": [{"name": "", "type": "string"}]}, "fields[0].name: '' must be a text"),
        ({"fields": [{"name": "a", "type": "string", "min": 1}]}, "fields[0].min: unknown"),
        ({"fields": [{"name": "a", "type": "integer", "least": "1"}]}, "least: '1' must be"),
        ({"fields": [FIELDS[0], FIELDS[0]]}, "'id' stands twice"),
        ({"count": 0}, "grade.count: 0 must be a positive whole number"),
        ({"count": True}, "grade.count: True must be"),
        ({"table": ""}, "grade.table: '' must be a name"),
    ],
)
def test_a_contract_that_says_nothing_sound_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        contract(**changes)
    assert message in str(caught.value)


def test_units() -> None:
    text = "It's 3.5 metres. Really?! Yes,\n\nwell-known"
    assert [count_units(text, unit) for unit in ("words", "sentences", "lines")] == [7, 3, 2]
    assert count_units("", "sentences") == count_units(" \n", "lines") == 0
