"""Properties of tool-call streams: no dependence on cuts, nothing lost, no crash, linear time."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_call_scene import TOOLS, call, outcome_of, parse, pieces_of, same, split

from ninfer.frontend.tool_calls import new_tool_call_parser

TAGS = ["<tool_call>", "</tool_call>", "<function=w>", "</function>", "</parameter>", "</think>"]
TAGS += [
    "<parameter=city>",
    "<parameter=days>",
    "<parameter=zzz>",
    "<parameter=opts>",
    "<function=",
]
TAGS += ["<function=zz>", "<tool_call", "<parameter=", "</param", "<function=w", "<parameter=note"]
TAGS += ["<", ">"]
TEXTS = ["\n", "\n\n", " ", "a", "3", "true", "null", '{"a": [1]}', "{'a': None}", '"', "\\", "é🙂"]
SOUP = st.lists(st.sampled_from([*TAGS, *TAGS, *TEXTS]), max_size=25).map("".join)


@settings(max_examples=200)
@given(SOUP, st.booleans())
def test_any_soup_of_tags_gives_the_same_for_every_cut(text, cut):
    outcome_of(text, cut=cut)


@settings(max_examples=200)
@given(SOUP)
def test_the_models_own_end_never_loses_a_call_of_the_cut_output(text):
    cut, whole = parse([text], cut=True), parse([text], cut=False)
    assert whole.calls[: len(cut.calls)] == cut.calls
    assert len(whole.calls) <= len(cut.calls) + 1
    assert whole.content == cut.content or whole.calls != cut.calls


@settings(max_examples=150)
@given(st.text("<>/=_acefillmnoprtu \n\"'{}", max_size=60), st.binary(max_size=5))
def test_any_text_is_survived(text, seed):
    for pieces in pieces_of(text, seed):
        parse(pieces)


class Words:
    """Words that stand nowhere else."""

    def __init__(self):
        self.all = []

    def new(self):
        self.all.append(f"word{len(self.all)}x")
        return self.all[-1]


def soup_of_words(rng):
    """Tags in any order with a new word in each name, key and text, and the words."""
    words = Words()
    named = (
        "<function={}>",
        "<parameter={}>",
        "<parameter={}\n",
        "<function={}\n",
        "<tool_call>\n<function={}>\n",
    )
    pieces = []
    for _ in range(rng.randrange(1, 30)):
        kind = rng.random()
        if kind < 0.3:
            pieces.append(rng.choice(named).format(words.new()))
        elif kind < 0.6:
            pieces.append(rng.choice([words.new, lambda: f"\n{words.new()}\n"])())
        else:
            pieces.append(rng.choice(["<tool_call>\n", "</tool_call>", "</function>\n"]))
            pieces.append(rng.choice(["</parameter>\n", "\n", "\n</parameter>\n", "<function=w>"]))
    return "".join(pieces) + "\n", words.all


@pytest.mark.parametrize("seed", range(100))
def test_every_word_comes_out_exactly_once(seed):
    text, words = soup_of_words(random.Random(seed))
    for cut in (False, True):
        for pieces in (split(text, 1), [text]):
            found = parse(pieces, cut=cut)
            shown = found.content + "".join(name + json for name, json in found.begun)
            assert [shown.count(word) for word in words] == [1] * len(words)


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.text("ab\n .", max_size=6),
            st.dictionaries(
                st.text("abcé-_. ", min_size=1, max_size=5).map(str.strip).filter(bool),
                st.text("ab\n\t \"'\\<&é🙂", max_size=12),
                max_size=3,
            ),
        ),
        max_size=4,
    ),
    st.text("ab\n ", max_size=5),
)
def test_what_a_template_writes_is_read_back_whole(turns, end):
    text = "".join(words + call(*values.items(), name="f") for words, values in turns) + end
    found = outcome_of(text)
    assert same(found.calls, tuple(("f", values) for _, values in turns))
    assert "".join(found.content.split()) == "".join("".join([*(t for t, _ in turns), end]).split())


LINEAR = {
    "one value with many <": lambda n: call(("city", ("<" + "x" * 99) * (n // 100))),
    "nothing but <": lambda n: call(("city", "<" * n)),
    "closers": lambda n: call(("city", "</parameter>" * (n // 12) + "a")),
    "closers on lines": lambda n: call(("city", "\n</function>\n</tool_call>\na" * (n // 27))),
    "openers": lambda n: call(("city", "<tool_call> " * (n // 12))),
    "space behind a closer": lambda n: call(("city", "</function>" + " " * n + "a")),
    "space behind a call": lambda n: "<tool_call>" + " " * n + "a" + call(),
    "nested calls": lambda n: call(("city", "<tool_call><function=f>" * (n // 23))),
    "content": lambda n: "<function=a" * (n // 11),
    "space": lambda n: " \n" * (n // 2),
    "calls": lambda n: call(("days", 1)) * (n // 90),
    "an object": lambda n: call(("opts", '{"a": "' + "<" * n + '"}')),
    "parameters": lambda n: "<function=w>" + "<parameter=city>a</parameter>" * (n // 29),
}


def seconds(text, size):
    """Processor time of parsing, the better of two."""
    pieces = split(text, size)
    best = float("inf")
    for _ in range(2):
        parser = new_tool_call_parser(TOOLS)
        started = time.process_time()
        for piece in pieces:
            parser.feed(piece)
        parser.finish(cut=False)
        best = min(best, time.process_time() - started)
    return best


@pytest.mark.parametrize("size", [3, 1_000_000])
@pytest.mark.parametrize("kind", LINEAR)
def test_time_is_linear(kind, size):
    count = 4_000 if size == 3 else 30_000
    assert seconds(LINEAR[kind](4 * count), size) < 10 * seconds(LINEAR[kind](count), size) + 0.05


def test_a_megabyte_with_ten_thousand_tag_starts():
    value = ("<" + "x" * 99) * 10_000
    assert parse(split(call(("city", value)), 40)).calls == (("w", {"city": value}),)
    half = call(("city", value[: len(value) // 2]))
    assert seconds(call(("city", value)), 40) < 4 * seconds(half, 40) + 0.05
