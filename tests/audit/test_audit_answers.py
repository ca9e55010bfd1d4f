"""Contracts of answers: a kept one passes, each way of breaking one is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from ninfer.audit.contracts import ContractCheck, parse_check
from ninfer.audit.sandbox import Limits
from ninfer.errors import UsageError


def check(contract: dict[str, Any], text: str) -> ContractCheck:
    return parse_check(contract, "contract")(text)


def reasons(contract: dict[str, Any], text: str) -> str:
    return "; ".join(check(contract, text).reasons)


RECORDS = {
    "kind": "jsonl",
    "count": 160,
    "fields": [
        {"name": "id", "type": "integer", "unique": True},
        {"name": "city", "type": "string"},
    ],
}
LINES = [f'{{"id": {n}, "city": "Ulm"}}' for n in range(160)]


def test_truncated_records_are_counted() -> None:
    whole = check(RECORDS, "\n".join(LINES))
    assert whole.ok and (whole.valid, whole.wanted) == (160, 160)
    cut = check(RECORDS, "\n".join(LINES)[:2000])
    assert not cut.ok and cut.wanted == 160 and cut.valid is not None and 50 < cut.valid < 100
    assert any("not JSON" in reason for reason in cut.reasons)
    assert f"{cut.valid} records in place of 160" in "; ".join(cut.reasons)


def test_one_wrong_row_of_220_is_named() -> None:
    contract = {**RECORDS, "kind": "csv", "count": 220}
    rows = ["id,city", *(f"{n},Ulm" for n in range(220))]
    assert check(contract, "\n".join(rows)).valid == 220
    rows[100] = "99,Ulm,extra"
    found = check(contract, "\n".join(rows))
    assert found.valid == 219 and "record 100: 3 cells in place of 2" in found.reasons
    rows[100] = "x99,Ulm"
    assert "record 100: id is 'x99'" in reasons(contract, "\n".join(rows))


def test_fenced_records_are_read_where_that_is_allowed() -> None:
    text = "Here they are:\n\n```jsonl\n" + "\n".join(LINES) + "\n```\n"
    assert check({**RECORDS, "fenced": True}, text).ok
    assert not check(RECORDS, text).ok


SQL = {
    "kind": "sql",
    "tables": {"users": {"columns": ["id", "name"], "rows": 2}, "orders": {"least": 1}},
    "views": ["totals"],
    "queries": [{"sql": "SELECT name FROM users ORDER BY id", "rows": [["Ada"], ["Ben"]]}],
}
SCRIPT = """PRAGMA foreign_keys = ON;
CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, user_id INTEGER REFERENCES users (id), price REAL);
INSERT INTO users VALUES (1, 'Ada'), (2, 'Ben');
INSERT INTO orders VALUES (1, 1, 9.5);
CREATE VIEW totals AS SELECT user_id, sum(price) AS total FROM orders GROUP BY user_id;
"""


def test_a_script_is_run_and_looked_at() -> None:
    assert check(SQL, SCRIPT).ok
    assert check(SQL, f"Here:\n```sql\n{SCRIPT}```").ok
    assert check(SQL, SCRIPT).notes == ("run in SQLite",)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("sum(price)", "sum(cost)", "view totals: no such column: cost"),  # parses, and fails
        (
            "user_id INTEGER REFERENCES users (id)",
            "user_id INTEGER REFERENCES people (id)",
            "SQLite",
        ),
        ("(2, 'Ben')", "(1, 'Ben')", "UNIQUE constraint failed"),
        (", (2, 'Ben')", "", "table users has 1 rows in place of 2"),
        ("'Ben'", "'Bob'", "gives \"[['Ada'], ['Bob']]\""),
        ("CREATE VIEW totals", "CREATE VIEW total", "no view totals"),
        ("name TEXT", "title TEXT", "has no column 'name'"),
        ("CREATE VIEW", "CREATE VEIW", "syntax error"),
        ("INSERT INTO orders VALUES (1, 1, 9.5);", "", "table orders has 0 rows, not 1"),
    ],
)
def test_a_script_that_does_not_do_is_named(old: str, new: str, reason: str) -> None:
    assert old in SCRIPT
    assert reason in reasons(SQL, SCRIPT.replace(old, new))


def test_a_script_can_neither_reach_files_nor_run_for_ever(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "not authorized" in reasons(SQL, "ATTACH 'x.db' AS x; CREATE TABLE x.t (a);" + SCRIPT)
    assert "VACUUM" in reasons(SQL, "VACUUM INTO 'copy.db';" + SCRIPT) or not list(
        tmp_path.iterdir()
    )
    assert not list(tmp_path.iterdir())
    endless = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n;"
    )
    monkeypatch.setattr("ninfer.audit.contracts.sql_script._SECONDS", 0.2)
    assert "interrupted" in reasons(SQL, f"CREATE TABLE t AS {endless}")


CODE = {
    "kind": "code",
    "language": "python",
    "files": ["stack.py", "test_stack.py"],
    "run": ["test_stack.py", "test_hidden.py"],
    "tests": {
        "test_hidden.py": "import unittest\nfrom stack import Stack\n\n"
        "class Hidden(unittest.TestCase):\n    def test_empty(self):\n"
        "        with self.assertRaises(IndexError):\n            Stack().pop()\n"
    },
}
STACK = """class Stack:
    def __init__(self):
        self.items = []

    def push(self, x):
        self.items.append(x)

    def pop(self):
        return self.items.pop()
"""
TESTS = """import unittest
from stack import Stack

class T(unittest.TestCase):
    def test_order(self):
        s = Stack()
        s.push(1)
        s.push(2)
        self.assertEqual(s.pop(), 2)

if __name__ == '__main__':
    unittest.main()
"""


def answer(stack: str = STACK, tests: str = TESTS) -> str:
    first = f"### `stack.py`\n\n```python\n{stack}```"
    return f"{first}\n\nThe tests:\n\n```python test_stack.py\n{tests}```\n"


LIMITS = Limits(seconds=120, cpu_seconds=1)


def test_code_is_compiled_and_its_tests_run() -> None:
    found = check(CODE, answer())
    assert found.reasons == () and (found.valid, found.wanted) == (2, 2)
    assert found.notes == ("compiled and tested by Python in a sandbox",)
    commented = f"```python\n# stack.py\n{STACK}```\n```python\n# file: test_stack.py\n{TESTS}```"
    assert check(CODE, commented).ok


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("```python\n# stack.py\n" + STACK + "```", "file test_stack.py is missing"),
        (answer()[:-60], "file test_stack.py is cut off"),
        (answer(STACK.replace("def push(", "def push(:")), "SyntaxError"),
        (answer(STACK.replace("self.items.pop()", "self.items.pop(0)")), "AssertionError: 1 != 2"),
        (answer(STACK.replace("return self.items.pop()", "return None")), "AssertionError"),
        (answer(STACK.replace("self.items = []", "self.item = []")), "AttributeError"),
        (answer(tests="import unittest\n"), "test_stack.py has no test"),
        (answer("import missing_module\n" + STACK), "ModuleNotFoundError"),
        (answer("while True:\n    pass\n" + STACK), "SIGXCPU"),
        (answer("x = bytearray(1 << 40)\n" + STACK), "MemoryError"),
        (
            answer("import socket\nsocket.create_connection(('127.0.0.1', 1))\n" + STACK),
            "PermissionError",
        ),
        (answer("import subprocess\nsubprocess.run(['true'])\n" + STACK), "sandbox allows no"),
        (answer("import os\nos.system('true')\n" + STACK), "sandbox allows no os.system"),
        (answer("open('/etc/passwd').read()\n" + STACK), "sandbox allows no open"),
        (answer("open('/tmp/ninfer-escaped', 'w')\n" + STACK), "sandbox allows no open"),
        (answer("import os\nos.remove('/tmp/ninfer-escaped')\n" + STACK), "allows no os.remove"),
        (answer("import ctypes\n" + STACK), "sandbox allows no import"),
        (answer("open('big', 'w').write('x' * (1 << 26))\n" + STACK), "OSError"),
    ],
)
def test_code_that_does_not_do_is_named(monkeypatch, text: str, reason: str) -> None:
    monkeypatch.setattr("ninfer.audit.contracts.code.LIMITS", LIMITS)
    found = reasons(CODE, text)
    assert reason in found, found
    assert not Path("/tmp/ninfer-escaped").exists()


def test_a_program_that_waits_is_ended() -> None:
    contract = {"kind": "code", "language": "python", "files": ["a.py"], "run": ["a.py"]}
    text = "```python\nimport time\ntime.sleep(60)\n```"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ninfer.audit.contracts.code.LIMITS", Limits(seconds=1.5))
        assert "its time was over" in reasons(contract, text)


def test_other_languages_are_parsed_at_least_for_brackets() -> None:
    contract = {
        "kind": "code",
        "language": "typescript",
        "files": ["queue.ts"],
        "contains": ["class"],
    }
    good = (
        'export class Queue<T> {\n  private re = /[{"(]/g; s = `a${this.n({a: 1})}b`;\n'
        "  n(x: object) { return 4 / 2; } // }\n}\n"
    )
    found = check(contract, f"```ts\n{good}```")
    assert found.ok and found.notes
    assert "{ is not closed" in reasons(contract, f"```ts\n{good[:-2]}```")
    assert "'interface' is missing" in reasons(
        {**contract, "contains": ["interface"]}, f"```ts\n{good}```"
    )
    cuda = {"kind": "code", "language": "cuda", "files": ["add.cu"], "contains": ["__global__"]}
    kernel = (
        "__global__ void add(float* a, int n) {\n  int i = threadIdx.x; // 1'000 {\n"
        "  if (i < n) { a[i] += 1'000; }\n}\n"
    )
    assert check(cuda, f"```cuda\n{kernel}```").ok
    assert "line 4: } closes" in reasons(
        cuda, f"```cuda\n{kernel.replace('(i < n) {', '(i < n)')}```"
    )
    assert "line 2: /* is not closed" in reasons(cuda, f"```cuda\n{kernel.replace('//', '/*')}```")
    assert "closes nothing" in reasons(cuda, f"```cuda\n{kernel}}}\n```")


DOCUMENT = """# Guide

Text with `RetryPolicy`.

## Install

| name | default | unit |
|------|---------|------|
| size | 4 | MiB |
| wait | 10 | s |

```json
{"size": 4, "wait": 10}
```

## Glossary

- **page**: 64 tokens
- **slot** - a state
3. window: what is drafted
"""
MARKDOWN = {
    "kind": "markdown",
    "headings": ["Guide", "Install", "Glossary"],
    "heading_count": 3,
    "table": {"columns": 3, "rows": 2, "header": ["default"]},
    "json": ["size", "wait"],
    "keep": ["RetryPolicy"],
    "glossary": 3,
}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("", "", ""),
        ("## Install", "Install", "heading 'Install' is missing"),
        ("# Guide", "# The end", "heading 'Guide' is missing"),
        ("| wait | 10 | s |\n", "", "the table has 1 rows, not 2"),
        ("| wait | 10 | s |", "| wait | 10 |", "row 2 of the table has 2 cells of 3"),
        ("|------|---------|------|\n", "", "no table"),
        ("default", "preset", "no column 'default'"),
        ('"wait": 10}', '"wait": 10', "is no JSON"),
        ('"wait"', '"pause"', "lacks wait"),
        ("```json", "```yaml", "no ```json block"),
        ("RetryPolicy", "Retry Policy", "'RetryPolicy' is missing"),
        ("- **slot** - a state\n", "", "the glossary has 2 entries, not 3"),
        ("## Glossary", "## Words", "no glossary"),
    ],
)
def test_markdown(old: str, new: str, reason: str) -> None:
    found = reasons(MARKDOWN, DOCUMENT.replace(old, new) if old else DOCUMENT)
    assert reason in found if reason else not found, found


def test_headings_inside_code_are_none() -> None:
    text = DOCUMENT.replace("## Install", "```sh\n## Install\n```")
    assert "heading 'Install' is missing" in reasons(MARKDOWN, text)


STORY = {
    "kind": "story",
    "parts": 3,
    "mark": "第{n}章",
    "characters": 60,
    "part_characters": 10,
    "ending": "（完）",
}
CHAPTERS = (
    "## 第1章 起程\n"
    + "风" * 20
    + "\n## 第2章 归来\n"
    + "雨" * 20
    + "\n## 第3章 终\n"
    + "雪" * 20
    + "\n（完）"
)


def test_story() -> None:
    assert check(STORY, CHAPTERS).ok and check(STORY, CHAPTERS).valid == 3
    assert "the parts are 1, 3, not 1..3" in reasons(STORY, CHAPTERS.replace("第2章", "第二章"))
    assert "does not end with" in reasons(STORY, CHAPTERS[:-3])
    assert "part 2 has less than 10" in reasons(STORY, CHAPTERS.replace("雨" * 20, "雨"))
    assert "characters, not 600" in reasons({**STORY, "characters": 600}, CHAPTERS)
    assert "a part repeats another" in reasons(
        STORY, CHAPTERS.replace("雨" * 20, "风" * 20).replace(" 归来", " 起程")
    )
    english = {"kind": "story", "parts": 2, "mark": "Chapter {n}", "words": ["lamp"]}
    assert check(english, "**Chapter 1**\nA lamp.\n\n**Chapter 2**\nDark.").ok


@pytest.mark.parametrize(
    ("value", "text", "right"),
    [
        (277, r"So \boxed{12} is wrong and \boxed{277}.", True),
        (277, "The answer is 277.", True),
        (277, "**Answer:** 1,277", False),
        (1277, "**Answer:** 1,277", True),
        (277, r"\boxed{277 \text{ cm}}", True),
        (277, "first 277, then 278", False),
        (277, "nothing", False),
        ("B", "Answer: B", True),
        ("B", r"\boxed{\text{C}}", False),
        (0.5, "答案：0.50", True),
    ],
)
def test_final_answers(value: object, text: str, right: bool) -> None:
    assert check({"kind": "answer", "value": value}, text).ok == right


def test_a_box_may_be_required() -> None:
    assert "no answer in" in reasons({"kind": "answer", "value": 4, "boxed": True}, "Answer: 4")


def test_needles() -> None:
    contract = {
        "kind": "needle",
        "answer": "ORCHID=12; COLOR=TEAL",
        "parts": ["ORCHID=12", "COLOR=TEAL"],
        "position": 0.5,
        "tokens": 8192,
        "exact": True,
    }
    assert check(contract, "ORCHID=12; COLOR=TEAL.\n").ok
    found = check(contract, "ORCHID=12; COLOR=BLUE")
    assert (found.valid, found.wanted) == (1, 2)
    assert "needle at 50% of 8192 tokens not found (1 of 2 parts)" in found.reasons[0]
    assert "more than the needle" in reasons(contract, "It is ORCHID=12; COLOR=TEAL")


def test_language() -> None:
    contract = {"kind": "language", "language": "zh", "share": 0.8, "keep": ["CUDA"], "letters": 4}
    assert check(contract, "使用 CUDA 编写内核").ok
    assert "of language zh" in reasons(contract, "write the kernel 内核")
    assert "0 letters, not 4" in reasons(contract, "12345")
    assert check({"kind": "language", "language": "de"}, "Größe und Straße").ok


def test_words() -> None:
    assert check({"kind": "text", "equals": "Cedar|2041"}, " Cedar|2041.\n").ok
    contract = {"kind": "text", "contains": ["red"], "any_of": ["three", "3"], "absent": ["sorry"]}
    assert check(contract, "3 red circles").ok
    assert "'red' is missing" in reasons(contract, "3 blue circles")
    assert "none of" in reasons(contract, "red circles")
    assert "must not occur" in reasons(contract, "sorry, 3 red circles")


def test_all_names_what_each_found() -> None:
    contract = {"kind": "all", "of": [RECORDS, {"kind": "text", "absent": ["Ulm"]}]}
    found = check(contract, "\n".join(LINES))
    assert found.reasons == ("'Ulm' must not occur",) and found.valid == 160


@pytest.mark.parametrize(
    ("contract", "message"),
    [
        ({"kind": "poem"}, "contract.kind: 'poem' must be one of jsonl"),
        ("text", "must be an object with a kind"),
        ({"kind": "text"}, "needs equals, contains, any_of or absent"),
        ({"kind": "text", "equals": "a", "colour": 1}, "contract.colour: unknown"),
        ({"kind": "code", "files": ["a.rs"], "language": "rust"}, "'rust' must be one of"),
        (
            {"kind": "code", "files": ["a.py"], "language": "python", "run": ["b.py"]},
            "'b.py' is in",
        ),
        ({"kind": "sql", "tables": {"a": {"cells": 1}}}, "takes columns, rows and least"),
        ({"kind": "sql", "queries": [{"rows": []}]}, "queries[0]: needs sql"),
        ({"kind": "markdown", "table": {"cells": 1}}, "takes columns, rows and header"),
        ({"kind": "story", "parts": 2, "mark": "Part"}, "mark with {n}"),
        ({"kind": "needle", "answer": "x", "position": 3}, "position: 3 must be 0..1"),
        ({"kind": "language", "language": "xx"}, "'xx' must be one of"),
        ({"kind": "language", "language": "zh", "share": 2}, "share: 2 must be above 0"),
        ({"kind": "all", "of": [{"kind": "?"}]}, "contract.of[0].kind"),
    ],
)
def test_contracts_that_are_none_are_refused(contract: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_check(contract, "contract")
    assert message in str(caught.value)


def test_contracts_are_json() -> None:
    for contract in (RECORDS, SQL, CODE, MARKDOWN, STORY):
        assert json.loads(json.dumps(contract)) == contract
