"""Strict JSON: the value, or one error that names the place."""

import time

import pytest

from ninfer.errors import ConfigError, PromptError
from ninfer.json_text import parse_json


def test_values_come_through() -> None:
    text = '{"a": [1, 2.5, null, true, "\\u00e9"], "b": {"a": {}}}'
    assert parse_json(text, "x", ConfigError) == {"a": [1, 2.5, None, True, "é"], "b": {"a": {}}}
    assert parse_json(text.encode(), "x", ConfigError) == parse_json(text, "x", ConfigError)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "m.json: not JSON"),
        ("{", "m.json: not JSON"),
        ("[1,]", "m.json: not JSON"),
        (b'{"a": "\xff"}', "m.json: not UTF-8 text at byte 7"),
        ('{"a": 1, "b": 2, "a": 3}', "m.json: member 'a' stands twice in one object"),
        ('{"' + "x" * 500 + '": 1, "' + "x" * 500 + '": 2}', "m.json: member 'xxx"),
        ("[1e400]", "m.json: '1e400' is too large a number"),
        ("[NaN]", "m.json: NaN is not JSON"),
        ("-Infinity", "m.json: -Infinity is not JSON"),
        ("[" * 100_000, "m.json: nested too deeply"),
        ('{"a":' * 100_000, "m.json: nested too deeply"),
        ("1" * 10_000, "m.json: not JSON"),
    ],
)
def test_everything_else_is_one_error(text: str | bytes, message: str) -> None:
    with pytest.raises(PromptError) as caught:
        parse_json(text, "m.json", PromptError)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_a_large_object_with_a_late_repetition_is_refused_in_linear_time() -> None:
    names = [f'"{index}": 0' for index in range(200_000)]
    start = time.process_time()
    with pytest.raises(ConfigError, match="member '199999' stands twice"):
        parse_json("{" + ",".join([*names, names[-1]]) + "}", "x", ConfigError)
    assert time.process_time() - start < 10
