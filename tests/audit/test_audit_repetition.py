"""Loops: every period is found and named, wherever it stands; honest texts are none."""

import random
import time

import numpy as np
import pytest

from ninfer.audit import StoredResponse
from ninfer.audit.cycles import find_cycles
from ninfer.audit.repetition import Repetition, repetition_of
from ninfer.audit.text_tokens import tokens_of
from tests.audit.legitimate import legitimate_texts, phrase


def repetition(text: str, reasoning: str = "", ids: tuple[int, ...] | None = None) -> Repetition:
    return repetition_of(StoredResponse("f", text, "stop", reasoning=reasoning, token_ids=ids))


def words(count: int, seed: int = 0) -> str:
    """So many different words."""
    draw = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return " ".join("".join(draw.choices(letters, k=6)) + letters[n % 26] for n in range(count))


def token_loop(period: int, before: int = 300) -> str:
    """Text of `before` tokens, then a period of words, spaces and a comma, for long enough."""
    block = "".join(f"{word} " for word in words(period // 2, seed=period).split())
    block += "," * (period % 2)
    return words(before // 2, seed=1) + "\n" + block * (max(-(-256 // period), 3) + 1)


def periods_of(text: str) -> set[int]:
    return {loop.period for loop in repetition(text).loops}


def check_token_period(period: int) -> None:
    found = repetition(token_loop(period))
    (loop,) = found.loops
    assert (loop.unit, loop.period, loop.start) == ("tokens", period, 300), loop
    assert loop.copies >= 3 and found.is_loop
    assert f"{period} token" in str(loop)


@pytest.mark.parametrize(
    "period", [*range(1, 33), 63, 64, 65, 127, 128, 129, 500, 1023, 1999, 2000]
)
def test_a_loop_of_tokens_is_found(period: int) -> None:
    check_token_period(period)


@pytest.mark.soak
def test_a_loop_of_any_period_of_tokens_is_found(record_property) -> None:
    for period in range(1, 2001):
        check_token_period(period)
    record_property("count", 2000)
    record_property("unit", "planted loops of tokens")


def line_loop(period: int) -> str:
    draw = random.Random(period)
    block = [f"{phrase(draw)} {word}" for word in words(period, seed=period).split()]
    copies = max(-(-40 // period), 3)
    return "\n".join([words(40), *block * copies])


@pytest.mark.parametrize("period", [*range(1, 41), 80, 160, 399, 400])
def test_a_loop_of_lines_is_found(period: int) -> None:
    found = repetition(line_loop(period))
    assert found.is_loop, period
    copies = max(-(-40 // period), 3)
    assert found.lines == 1 + period * copies and found.repeated == period * (copies - 1)
    assert found.commonest_count == copies


@pytest.mark.soak
def test_a_loop_of_any_period_of_lines_is_found(record_property) -> None:
    for period in range(1, 401):
        assert repetition(line_loop(period)).is_loop, period
    record_property("count", 400)
    record_property("unit", "planted loops of lines")


def test_short_lines_loop_by_lines() -> None:
    text = words(10) + "\n" + "so\n" * 30
    (loop,) = repetition(text).loops
    assert (loop.unit, loop.period, loop.start, loop.length) == ("lines", 1, 1, 30)
    assert text[loop.first : loop.last] == ("so\n" * 30).rstrip("\n")
    assert "1 line, 30.0 times, from line 1 on" in str(loop)
    assert not repetition(words(10) + "\n" + "so\n" * 20).is_loop


def test_a_loop_in_the_middle_counts_when_it_is_half_of_the_text() -> None:
    block = words(20) + " "
    inside = words(100, seed=1) + "\n" + block * 20 + "\n" + words(100, seed=2)
    assert repetition(inside).is_loop
    beside = words(900, seed=1) + "\n" + block * 20 + "\n" + words(900, seed=2)
    assert not repetition(beside).is_loop
    long = words(900, seed=1) + "\n" + block * 60 + "\n" + words(4000, seed=2)
    assert repetition(long).is_loop


def test_two_long_copies_at_the_end_are_enough() -> None:
    block = words(200) + "\n"
    assert periods_of(words(50, seed=1) + "\n" + block * 2) == {400}
    assert not repetition(words(50, seed=1) + "\n" + block * 2 + words(400, seed=2)).is_loop


def test_the_span_of_a_loop_is_where_it_stands() -> None:
    before, block = words(100) + "\n", words(30, seed=5) + "; "
    text = before + block * 9
    (loop,) = repetition(text).loops
    assert loop.first == len(before) and loop.last == len(text)
    assert loop.excerpt.startswith(block[:20]) and loop.channel == "text"
    (loop,) = repetition("Done.", reasoning=text).loops
    assert loop.channel == "reasoning"


def test_ids_tell_a_loop_that_the_text_hides() -> None:
    ids = (*range(1000, 1100), *[7, 8, 9] * 100)
    (loop,) = repetition("nothing to see", ids=ids).loops
    assert (loop.channel, loop.period, loop.start, loop.length) == ("token ids", 3, 100, 300)
    assert loop.first is None


def test_text_without_spaces_loops_too() -> None:
    assert repetition("ha" * 4000).is_loop
    assert repetition("春眠不觉晓" * 80).loops[0].period == 5
    assert repetition("!" * 300).loops[0].period == 1
    assert repetition(words(20) + "\n" * 300).loops[0].period == 1
    assert repetition("3.14159265" + "0" * 300).is_loop


def test_other_order_of_the_same_is_a_loop_in_other_words() -> None:
    draw = random.Random(3)
    blocks = [words(60, seed=n) + "\n" for n in range(4)]
    text = "".join(draw.choice(blocks) for _ in range(40))
    found = repetition(text)
    assert found.says_again and found.is_loop


def test_lines_alike_but_for_numbers_are_shown_and_judge_nothing() -> None:
    found = repetition("\n".join(f"Step {n}: check the value {n * 7}" for n in range(100)))
    assert (found.lines, found.repeated, found.near) == (100, 0, 99)
    assert not found.is_loop and "(99 but for numbers)" in found.evidence


def test_no_honest_text_is_a_loop() -> None:
    count = 0
    for name, text in legitimate_texts():
        count += 1
        found = repetition(text)
        assert not found.is_loop, (name, [str(loop) for loop in found.loops], found.evidence)
    assert count >= 200


def test_cycles_are_what_brute_force_says() -> None:
    draw = np.random.default_rng(1)
    for _ in range(60):
        parts = []
        for _ in range(draw.integers(1, 4)):
            block = draw.integers(0, 3, draw.integers(1, 12))
            parts += [
                draw.integers(0, 50, draw.integers(5, 40)),
                np.tile(block, draw.integers(3, 9)),
            ]
        symbols = np.concatenate(parts).astype(np.int64)
        found = find_cycles(symbols, 16)
        covered = np.zeros(len(symbols), dtype=bool)
        for cycle in found:
            part = symbols[cycle.start : cycle.end]
            assert (part[cycle.period :] == part[: -cycle.period]).all()
            covered[cycle.start : cycle.end] = True
        for start in range(len(symbols) - 16):
            for period in range(1, (len(symbols) - start) // 3 + 1):
                length = max(16, 3 * period)
                part = symbols[start : start + length]
                if len(part) == length and (part[period:] == part[:-period]).all():
                    # It is in a cycle that was found, or in conflict with a longer one.
                    assert covered[start : start + length].any(), (start, period)


def test_a_thousand_responses_take_seconds() -> None:
    """The whole budget is 20 s on one core; a slow machine may take twice as long here."""
    texts = [words(4000, seed=n) for n in range(20)]
    texts += [words(2000, seed=n) + (words(500, seed=n + 1) + "\n") * 4 for n in range(20)]
    start = time.process_time()
    for text in texts:
        repetition(text)
    assert (time.process_time() - start) / len(texts) < 0.04


def test_65k_tokens_take_less_than_a_second() -> None:
    text = words(10_000) + (words(1000, seed=1) + "\n") * 22
    assert len(tokens_of(text)) > 60_000
    start = time.process_time()
    assert repetition(text).is_loop
    assert time.process_time() - start < 1.0
