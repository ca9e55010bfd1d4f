"""Free text out of JSON pieces: the same however the JSON is cut."""

import itertools
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.server.responses.free_text import FreeText


def read(text: str, cuts: list[int]) -> str:
    free = FreeText()
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    found = "".join(free.feed(piece) for piece in pieces)
    assert found == free.sent
    return found


@given(st.text(), st.booleans(), st.lists(st.integers(0, 400), max_size=30))
def test_any_text_in_any_pieces(text: str, ascii_only: bool, cuts: list[int]) -> None:
    compact = json.dumps({"input": text}, ensure_ascii=ascii_only, separators=(",", ":"))
    assert read(compact, cuts) == text


@pytest.mark.parametrize("text", ['a "q" \\', "\\\\", "\n\t\\n", "🙂é\x00", "", '}"}'])
def test_each_character_alone(text: str) -> None:
    for ascii_only in (False, True):
        compact = json.dumps({"input": text}, ensure_ascii=ascii_only, separators=(",", ":"))
        assert read(compact, list(range(len(compact)))) == text


def test_text_comes_as_it_grows() -> None:
    free = FreeText()
    assert free.feed('{"input":"ab') == "ab"
    assert free.feed("c\\") == "c"
    assert free.feed('n"') == "\n"
    assert free.feed(',"more":"x"}') == ""


def test_other_arguments_give_nothing() -> None:
    for text in ('{"other":"x"}', "{}", '{"input":7}'):
        random.seed(1)
        assert read(text, [random.randrange(20) for _ in range(5)]) == ""
