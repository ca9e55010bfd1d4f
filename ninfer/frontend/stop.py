"""Stop strings in streamed text, wherever the pieces are cut."""

from collections import deque
from collections.abc import Sequence

from ninfer.errors import RequestError


class StopMatcher:
    """Finds the stop string that is complete first in a text given in pieces.

    Text that may be the beginning of a stop string is held back. Of several that end at the same
    character the longest counts. Time is linear in the text (Aho and Corasick, 1975). Raises
    RequestError for an empty stop string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if "" in stops:
            raise RequestError("a stop string is empty; leave it out or give it characters")
        self._next, self._fail, self._found, self._depth = _automaton(stops)
        self._state = 0
        self._held = ""
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        """Text that is now known to stand before any stop string; "" after a match."""
        if self.matched is not None:
            return ""
        if len(self._next) == 1:
            return text
        for place, letter in enumerate(text):
            self._state = self._step(self._state, letter)
            found = self._found[self._state]
            if found is not None:
                self.matched = found
                shown = self._held + text[: place + 1]
                self._held = ""
                return shown[: len(shown) - len(found)]
        pending = self._held + text
        cut = len(pending) - self._depth[self._state]
        self._held = pending[cut:]
        return pending[:cut]

    def flush(self) -> str:
        """The held text, which no stop string goes on from: the text ends or is interrupted."""
        held, self._held, self._state = self._held, "", 0
        return held

    def _step(self, state: int, letter: str) -> int:
        while state and letter not in self._next[state]:
            state = self._fail[state]
        return self._next[state].get(letter, 0)


def _automaton(
    stops: Sequence[str],
) -> tuple[list[dict[str, int]], list[int], list[str | None], list[int]]:
    """Per state: successors, failure link, longest stop string that ends there, depth."""
    following: list[dict[str, int]] = [{}]
    fail, depth = [0], [0]
    found: list[str | None] = [None]
    for stop in stops:
        state = 0
        for letter in stop:
            if letter not in following[state]:
                following[state][letter] = len(following)
                following.append({})
                fail.append(0)
                found.append(None)
                depth.append(depth[state] + 1)
            state = following[state][letter]
        found[state] = stop
    queue = deque(following[0].values())
    while queue:
        state = queue.popleft()
        for letter, child in following[state].items():
            link = fail[state]
            while link and letter not in following[link]:
                link = fail[link]
            fail[child] = following[link].get(letter, 0)
            found[child] = found[child] or found[fail[child]]
            queue.append(child)
    return following, fail, found, depth
