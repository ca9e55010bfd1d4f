"""Lookup: the longest earlier occurrence, the newest of equals, and what it costs."""

import random
import time

import pytest
from spec_scene import Pool

from ninfer.runtime.sequence import Sequence
from ninfer.runtime.speculative import LookupProposer
from ninfer.runtime.speculative.lookup import LONGEST, SHORTEST, Match


def sequence_of(tokens: list[int]) -> Sequence:
    made = Pool().sequence(tokens[:1], 1)
    made.tokens.extend(tokens[1:])
    return made


def slow_match(tokens: list[int]) -> Match:
    """Every earlier place compared in full."""
    best = Match()
    for end in range(len(tokens) - 1, SHORTEST - 1, -1):
        length = 0
        while length < min(end, LONGEST) and tokens[end - 1 - length] == tokens[-1 - length]:
            length += 1
        if length >= SHORTEST and length > best.length:
            best = Match(length, end)
    return best


def text_of(ids: int, length: int, rng: random.Random) -> list[int]:
    """Random tokens with earlier pieces of the text repeated among them."""
    tokens: list[int] = []
    while len(tokens) < length:
        start = rng.randint(0, len(tokens))
        tokens += tokens[start : start + rng.randint(0, 2 * LONGEST)]
        tokens += rng.choices(range(ids), k=rng.randint(1, 12))
    return tokens[:length]


@pytest.mark.parametrize("ids", [3, 5, 40])
def test_the_match_is_the_longest_and_then_the_newest(ids: int) -> None:
    """Fewer ids mean more places to compare than are tried; the text then stays short."""
    rng = random.Random(ids)
    found = 0
    for length in (1, 2, 3, 4, 7, 20, 40 if ids == 3 else 400):
        tokens = text_of(ids, length, rng)
        lookup, sequence = LookupProposer(), sequence_of(tokens[:1])
        for n in range(1, length + 1):
            sequence.tokens[:] = tokens[:n]
            if rng.random() < 0.5 or n == length:
                match = lookup.match(sequence)
                assert match == slow_match(tokens[:n])
                found += match.length > 0
    assert found > 5


def test_drafts_are_what_followed() -> None:
    lookup = LookupProposer()
    sequence = sequence_of([1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4])
    assert lookup.propose([sequence], [4]) == [[5, 6, 7, 8]]
    assert lookup.propose([sequence], [1]) == [[5]]
    assert lookup.propose([sequence], [0]) == [[]]


def test_the_longer_context_wins_over_the_newer_one() -> None:
    old, new = [50, 1, 2, 3, 60], [51, 1, 2, 3, 61]
    sequence = sequence_of([*old, *new, 50, 1, 2, 3])
    assert LookupProposer().propose([sequence], [1]) == [[60]]
    sequence = sequence_of([*old, *new, 52, 1, 2, 3])
    assert LookupProposer().propose([sequence], [1]) == [[61]]


def test_a_period_goes_on() -> None:
    lookup = LookupProposer()
    assert lookup.propose([sequence_of([9, 1, 2, 1, 2, 1, 2])], [5]) == [[1, 2, 1, 2, 1]]
    assert lookup.propose([sequence_of([9, 7, 7, 7, 7])], [3]) == [[7, 7, 7]]


def test_short_and_new_text_has_no_drafts() -> None:
    lookup = LookupProposer()
    for tokens in ([1], [1, 1], [1, 2, 3], list(range(50)), [1, 2, 9, 1, 2]):
        assert lookup.propose([sequence_of(tokens)], [4]) == [[]]


def test_sequences_do_not_share_their_text() -> None:
    lookup = LookupProposer()
    one, two = sequence_of([1, 2, 3, 4, 1, 2, 3]), sequence_of([5, 6, 1, 2, 3])
    assert lookup.propose([one, two], [2, 2]) == [[4, 1], []]
    lookup.release(one)
    lookup.release(one)
    assert not lookup._indices.keys() - {two}
    assert lookup.propose([one], [2]) == [[4, 1]]


def test_steps_stay_short_in_a_long_text_of_one_token() -> None:
    """The worst case for links: 50,000 places have the same run. A scan of all would take hours."""
    lookup, sequence = LookupProposer(), sequence_of([7] * 50_000)
    lookup.match(sequence)
    start = time.process_time()
    for _ in range(1000):
        sequence.tokens.append(7)
        assert lookup.match(sequence).length == LONGEST
    assert time.process_time() - start < 5
