"""The constraint of a least number of tokens: stop ids are out until then, and only until then."""

import pytest

from ninfer.frontend.least_tokens import LeastTokens

STOPS = (3, 40)


def allows(mask: bytes, token_id: int) -> bool:
    word = int.from_bytes(mask[token_id // 32 * 4 :][:4], "little")
    return bool(word >> token_id % 32 & 1)


def test_stops_come_only_behind_the_least() -> None:
    state = LeastTokens(2, 70, STOPS)
    for taken in range(4):
        mask = state.allowed()
        assert len(mask) == 12
        assert [allows(mask, token_id) for token_id in STOPS] == [taken >= 2] * 2
        assert all(allows(mask, token_id) for token_id in range(70) if token_id not in STOPS)
        assert not any(allows(mask, token_id) for token_id in range(70, 96))
        assert state.may_stop is (taken >= 2)
        if taken < 2:
            assert not state.advance(3)
        assert state.advance(7)
    assert state.advance(40) and state.is_finished and not state.advance(7)


@pytest.mark.parametrize("back", [1, 2, 3])
def test_rollback_and_forks(back: int) -> None:
    state = LeastTokens(2, 70, STOPS)
    for token_id in (1, 2, 3):
        assert state.advance(token_id)
    other = state.fork()
    other.rollback(back)
    assert state.is_finished and not other.is_finished
    assert allows(other.allowed(), 3) is (3 - back >= 2)


def test_masks_along_drafts_are_those_of_the_walk() -> None:
    state = LeastTokens(2, 70, STOPS)
    ahead = state.allowed_ahead([5, 6, 7, 3, 9])
    assert len(ahead) == 4
    for mask, draft in zip(ahead, (5, 6, 7, 3), strict=True):
        assert mask == state.allowed()
        assert state.advance(draft)
    assert LeastTokens(2, 70, STOPS).allowed_ahead([3, 5]) == ahead[:1]
