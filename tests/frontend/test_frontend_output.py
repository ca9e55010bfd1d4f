"""Generated ids to channels: the reasoning split, stop strings, and independence of the cuts."""

import random
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer.convert.byte_tokenizer import build_tokenizer
from ninfer.errors import RequestError
from ninfer.frontend import Frontend
from ninfer.frontend.reasoning import ReasoningSplitter, starts_in_reasoning
from ninfer.frontend.stop import StopMatcher
from ninfer.request import PreparedPrompt, StopRules

FRONTEND = Frontend.from_resources(build_tokenizer(800))
TOKENIZER = FRONTEND.tokenizer
CLOSE = TOKENIZER.added["</think>"]


def parser(reasoning=True, stop=None, raw=False):
    return FRONTEND.new_output_parser(PreparedPrompt("", (), reasoning), stop, raw=raw)


def collect(output, groups):
    shown = {"reasoning": "", "content": ""}
    for deltas in (*map(output.feed, groups), output.finish()):
        for delta in deltas:
            assert delta.text
            shown[delta.channel] += delta.text
    return shown["reasoning"], shown["content"]


def spelled(text):
    """Ids that spell a text byte by byte, tags included."""
    return [next(iter(TOKENIZER.encode(chr(b)))) if b < 128 else byte_id(b) for b in text.encode()]


def byte_id(value):
    return next(i for i in range(256) if TOKENIZER.token_bytes(i) == bytes([value]))


# Start in reasoning, output, reasoning, content.
SPLITS = {
    "plain": (True, "R</think>\n\nC", "R", "C"),
    "newline before the closer": (True, "R\n</think>\n\nC", "R", "C"),
    "inner newlines": (True, "a\n\n b\n</think>C\n\nD", "a\n\n b", "C\n\nD"),
    "repeated opener": (True, "<think>\nR</think>C", "\nR", "C"),
    "opener only once": (True, "<think><think>R</think>C", "<think>R", "C"),
    "opener later": (True, "a <think>b</think>C", "a <think>b", "C"),
    "closer first": (True, "</think>C", "", "C"),
    "never closed": (True, "R and more", "R and more", ""),
    "never closed with space": (True, "R \n", "R \n", ""),
    "only space": (True, "\n\n</think>C", "", "C"),
    "only space, never closed": (True, "\n\n", "", ""),
    "nothing after the closer": (True, "R\n</think>\n\n", "R", ""),
    "thinking off": (False, "a<think>b</think>c", "", "a<think>b</think>c"),
    "thinking off, leading space": (False, "\n a", "", "\n a"),
    "second closer": (True, "R</think>C</think>D<think>E", "R", "C</think>D<think>E"),
    "fake start": (True, "a<tool_c</think>C", "a<tool_c", "C"),
    "mentioned call": (True, "use `<tool_call>` here</think>C", "use `<tool_call>` here", "C"),
    "cut closer": (True, "R</thi", "R</thi", ""),
    "near closer": (True, "R</thin></think>C", "R</thin>", "C"),
    "doubled start": (True, "R<</think>C", "R<", "C"),
    "cut opener": (True, "<thi", "<thi", ""),
    "other characters": (True, "é🙂\u3000</think>\u3000数", "é🙂", "数"),
}


def cuts(text):
    """The ids of a text in several spellings and groupings."""
    rng = random.Random(text)
    whole = TOKENIZER.encode(text)
    for ids in (whole, spelled(text)):
        yield [ids]
        yield [[i] for i in ids]
        for _ in range(5):
            places = sorted(rng.choices(range(len(ids) + 1), k=3))
            edges = [0, *places, len(ids)]
            yield [ids[a:b] for a, b in pairwise(edges)]


@pytest.mark.parametrize("name", SPLITS)
def test_reasoning_split_is_the_same_for_every_cut(name):
    reasoning, text, thought, answer = SPLITS[name]
    for groups in cuts(text):
        assert collect(parser(reasoning), groups) == (thought, answer)


@pytest.mark.parametrize("name", SPLITS)
def test_splitter_takes_text_cut_anywhere(name):
    reasoning, text, _, answer = SPLITS[name]
    for size in (1, 2, 3, 5, 100):
        splitter = ReasoningSplitter(reasoning)
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        deltas = [delta for piece in pieces for delta in splitter.feed(piece)] + splitter.flush()
        assert "".join(d.text for d in deltas if d.channel == "content") == answer


def test_nothing_that_may_be_a_tag_is_shown_early():
    output = parser()
    assert [d.text for d in output.feed(spelled("R</thin"))] == ["R"]
    assert output.feed(spelled("k>\n")) == []
    assert [(d.channel, d.text) for d in output.feed(spelled("\nC"))] == [("content", "C")]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<|im_start|>assistant\n<think>\nso far", True),
        ("<|im_start|>assistant\n<think>\nR\n</think>\n\nthe tag <think>", False),
        ("<|im_start|>assistant\nthe tag <think>", False),
        ("<|im_start|>user\n<think><|im_end|>\n<|im_start|>assistant\n", False),
        ("<|im_start|>user\n</think><|im_end|>\n<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>user\nq<|im_end|>\n", False),
        ("<|im_start|>user\n<think><|im_end|>\n", False),
        ("plain", False),
        ("<think>\n", True),
        ("", False),
    ],
)
def test_start_state_is_read_off_the_last_turn(prompt, expected):
    assert starts_in_reasoning(prompt) is expected


def test_reasoning_tokens_count_the_ids_of_the_open_thought():
    ids = [*spelled("abc"), CLOSE, *spelled("\n\nde")]
    for size in (1, 2, 3, 99):
        output = parser()
        collect(output, [ids[i : i + size] for i in range(0, len(ids), size)])
        assert (output.tokens, output.reasoning_tokens) == (8, 4)


def test_turn_ends_show_no_text():
    ids = [*spelled("a"), *FRONTEND.stop_ids, *spelled("b")]
    assert collect(parser(False), [ids]) == ("", "ab")
    assert collect(parser(False, StopRules(token_ids=(byte_id(97),))), [ids]) == ("", "b")


def test_raw_output_is_not_split():
    stop = StopRules(content=("X",), reasoning=("R",))
    output = parser(True, stop, raw=True)
    assert collect(output, [TOKENIZER.encode("R</think>\n\nC<|im_start|>X.")]) == (
        "",
        "R</think>\n\nC<|im_start|>",
    )
    assert output.reasoning_tokens == 0


@pytest.mark.parametrize(
    ("text", "stop", "expected", "match"),
    [
        ("T, END R</think>C END D", StopRules(content=("END",)), ("T, END R", "C "), "content"),
        ("T END R</think>C", StopRules(reasoning=("END",)), ("T ", ""), "reasoning"),
        ("R</think>\n\nC\n\nD", StopRules(content=("\n\n",)), ("R", "C"), "content"),
        ("a\n\nb</think>C", StopRules(reasoning=("\n\n",)), ("a", ""), "reasoning"),
        ("R EN</think>C EN", StopRules(("END",), ("END",), ("END",)), ("R EN", "C EN"), None),
        ("R</think>EN", StopRules(reasoning=("END",)), ("R", "EN"), None),
        ("R</th", StopRules(reasoning=("</th",)), ("R", ""), "reasoning"),
        ("", StopRules(content=("a",)), ("", ""), None),
    ],
)
def test_stop_strings_per_channel(text, stop, expected, match):
    stop = StopRules((), stop.content, stop.reasoning)
    for groups in cuts(text):
        output = parser(True, stop)
        assert collect(output, groups) == expected
        assert output.stopped is (match is not None)
        assert (output.stop_match.channel if output.stop_match else None) == match


def test_the_stop_match_says_how_many_ids_led_to_it():
    ids = spelled("abSTOPcd")
    for groups in ([ids], [[i] for i in ids], [ids[:4], ids[4:]]):
        output = parser(False, StopRules(content=("STOP",)))
        assert collect(output, groups) == ("", "ab")
        assert output.tokens == output.stop_match.tokens == 6
        assert output.feed(spelled("more")) == []


def test_unfinished_character_before_the_end_and_in_a_stop_string():
    ids = [byte_id(0xF0), byte_id(0x9F)]
    assert collect(parser(False), [ids]) == ("", "\ufffd")
    assert collect(parser(False, StopRules(content=("\ufffd",))), [ids]) == ("", "")


def first_stop(text, stops):
    """By definition: the smallest end, and of those the longest stop string."""
    ends = [
        (end, -len(s), s) for s in stops for end in range(len(text) + 1) if text[:end].endswith(s)
    ]
    if not ends:
        return text, None
    end, _, stop = min(ends)
    return text[: end - len(stop)], stop


@settings(max_examples=500)
@given(
    st.text("ab", max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=6), max_size=4),
    st.integers(1, 7),
)
def test_stop_matcher_equals_its_definition(text, stops, size):
    matcher = StopMatcher(stops)
    shown = "".join(matcher.feed(text[i : i + size]) for i in range(0, len(text), size))
    if matcher.matched is None:
        shown += matcher.flush()
    assert (shown, matcher.matched) == first_stop(text, stops)


@given(st.text("ab", max_size=20), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_stop_matcher_holds_back_no_more_than_it_must(text, stops):
    matcher = StopMatcher(stops)
    shown = ""
    for end, letter in enumerate(text, 1):
        shown += matcher.feed(letter)
        if matcher.matched is not None:
            break
        held = text[len(shown) : end]
        assert not held or any(stop.startswith(held) for stop in stops)


TAGS = st.sampled_from(["<think>", "</think>", "</th", "\n", " ", "a", "END", "EN", "é", "🙂"])
RULES = st.builds(
    StopRules,
    st.just(()),
    st.sampled_from([(), ("END",), ("\n\n", "aE"), ("</think>",)]),
    st.sampled_from([(), ("END",), ("\n",)]),
)


@given(st.lists(TAGS, max_size=10).map("".join), RULES, st.booleans(), st.booleans(), st.data())
def test_groups_of_ids_never_matter(text, stop, reasoning, raw, data):
    ids = data.draw(st.sampled_from([TOKENIZER.encode(text), spelled(text)]))
    one, many = parser(reasoning, stop, raw), parser(reasoning, stop, raw)
    size = data.draw(st.integers(1, 5))
    groups = [ids[i : i + size] for i in range(0, len(ids), size)]
    assert collect(one, [ids]) == collect(many, groups)
    assert one.stop_match == many.stop_match
    assert (one.tokens, one.reasoning_tokens) == (many.tokens, many.reasoning_tokens)


@given(st.lists(TAGS, max_size=10).map("".join))
def test_no_visible_character_is_lost(text):
    thought, answer = collect(parser(), [spelled(text)])
    rest = text.removeprefix("<think>").replace("</think>", "", 1)
    assert "".join((thought + answer).split()) == "".join(rest.split())


def test_time_is_linear():
    stop = StopRules(content=("a" * 50 + "b",), reasoning=("<" * 50 + "b",))

    def seconds(count):
        ids = [byte_id(ord("<"))] * count + [CLOSE] + [byte_id(ord("a"))] * count
        best = float("inf")
        for _ in range(3):
            output = parser(True, stop)
            started = time.process_time()
            collect(output, [ids])
            best = min(best, time.process_time() - started)
        return best

    assert seconds(16000) < 8 * seconds(4000)


def test_empty_stop_strings_are_refused():
    with pytest.raises(RequestError, match="empty"):
        parser(True, StopRules(content=("a", "")))
