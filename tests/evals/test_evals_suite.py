"""Suites: read, chosen from, hashed; every broken item is named by its line."""

import json
from pathlib import Path
from typing import Any

import pytest
from suite_files import item_of, write_suite

from ninfer.errors import UsageError
from ninfer.evals import load_suite, suite_names
from ninfer.evals.suite import parse_item

IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]


def digest_of(**changes: Any) -> str:
    return parse_item(item_of(1, **changes), "item").digest


def test_a_folder_is_a_suite(tmp_path: Path) -> None:
    shown = item_of(0, "look", messages=IMAGE)
    sums = [item_of(n) for n in range(3)]
    suite = load_suite(str(write_suite(tmp_path / "mine", {"sums": sums, "look": [shown]})))
    assert suite.name == "mine" and suite.tasks == ("look", "sums")
    assert [item.id for item in suite.items] == ["look/0", "sums/0", "sums/1", "sums/2"]
    assert [item.has_media for item in suite.items] == [True, False, False, False]
    assert suite.without_media().tasks == ("sums",)
    assert [item.id for item in suite.first(1).items] == ["look/0", "sums/0"]
    assert len(suite.of_tasks(["sums"]).items) == 3
    with pytest.raises(UsageError, match="--task none: suite mine has look, sums"):
        suite.of_tasks(["sums", "none"])
    assert suite.digest != suite.without_media().digest


def test_every_suite_of_the_package_can_be_read() -> None:
    for name in suite_names():
        assert load_suite(name).items


def test_a_digest_tells_items_apart_by_what_matters() -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"max_new": 9},
        {"thinking": True},
        {"grade": {"kind": "number", "answer": 3}},
        {"messages": [{"role": "user", "content": "2 + 1 = ?"}]},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"id": "sums/01"},
    )
    digests = {digest_of(), *(digest_of(**change) for change in changes)}
    assert len(digests) == 1 + len(changes)
    assert digest_of(reference="two") == digest_of()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": ""}, "sums.jsonl:1.id: '' must be a text that is not empty"),
        ({"id": 1}, "sums.jsonl:1.id: 1 must be a text"),
        ({"task": "other"}, "sums.jsonl:1.task: 'other' must be 'sums'"),
        ({"messages": []}, "sums.jsonl:1.messages: must not be empty"),
        ({"messages": ["hi"]}, "sums.jsonl:1.messages: must be a list of objects"),
        ({"tools": {}}, None),
        ({"tools": [1]}, "sums.jsonl:1.tools: must be a list of objects"),
        ({"thinking": 1}, "sums.jsonl:1.thinking: 1 must be true or false"),
        ({"max_new": 0}, "sums.jsonl:1.max_new: 0 must be a positive whole number"),
        ({"max_new": True}, "sums.jsonl:1.max_new: True must be"),
        ({"grade": {"kind": "number"}}, "sums.jsonl:1.grade.answer: None must be of type int"),
        ({"grades": {}}, "sums.jsonl:1.grades: unknown"),
    ],
)
def test_a_broken_item_is_named(
    tmp_path: Path, changes: dict[str, Any], message: str | None
) -> None:
    folder = write_suite(tmp_path / "s", {"sums": [item_of(1, **changes)]})
    if message is None:
        assert load_suite(str(folder)).items[0].tools == ()
        return
    with pytest.raises(UsageError) as caught:
        load_suite(str(folder))
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["id", "task", "messages", "max_new", "grade"])
def test_a_missing_member_is_named(tmp_path: Path, name: str) -> None:
    item = item_of(1)
    del item[name]
    with pytest.raises(UsageError, match=rf"sums.jsonl:1.{name}: missing"):
        load_suite(str(write_suite(tmp_path / "s", {"sums": [item]})))


def test_other_things_than_suites_are_refused(tmp_path: Path) -> None:
    for name in ("none", str(tmp_path / "none")):
        with pytest.raises(UsageError, match=r"neither a suite \(known: .*\) nor a folder"):
            load_suite(name)
    with pytest.raises(UsageError, match=r"the folder has no \.jsonl files"):
        load_suite(str(tmp_path))
    file = tmp_path / "sums.jsonl"
    for data, message in (
        (b"\xff\n", "sums.jsonl: not UTF-8 text"),
        (b'{"id": 1,}\n', "sums.jsonl:1: not JSON"),
        (b'\n{"id": "a", "id": "b"}\n', "sums.jsonl:2: member 'id' stands twice"),
        (b"[]\n", "sums.jsonl:1: must be an object"),
    ):
        file.write_bytes(data)
        with pytest.raises(UsageError) as caught:
            load_suite(str(tmp_path))
        assert message in str(caught.value)
    file.write_text(json.dumps(item_of(1)) + "\n" + json.dumps(item_of(1)))
    with pytest.raises(UsageError, match="id 'sums/1' stands twice"):
        load_suite(str(tmp_path))


def test_a_line_separator_inside_a_text_ends_no_line(tmp_path: Path) -> None:
    item = item_of(1, messages=[{"role": "user", "content": "a\u2028b\x85c"}])
    (tmp_path / "sums.jsonl").write_text(json.dumps(item, ensure_ascii=False), encoding="utf-8")
    (read,) = load_suite(str(tmp_path)).items
    assert read.messages[0]["content"] == "a\u2028b\x85c"
