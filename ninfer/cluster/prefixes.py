"""Where conversations have been: digests of what a request begins with, and the replica of each."""

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

# Beginnings that are remembered, some hundred bytes each.
_MOST: Final = 1 << 18
# Pieces of prompts without turns.
_CHARACTERS: Final = 1024
_IDS: Final = 256
_MOST_PIECES: Final = 64
# Markers that clients move from turn to turn; they are no part of the prompt.
_MOVED: Final = "cache_control"


def beginnings(path: str, body: Mapping[str, Any]) -> list[bytes]:
    """Digests of the request's beginnings, shortest first, each of a turn more than the one before.

    What all conversations of an agent share, its tools and system text, is not one by itself: it is
    soon on every replica. Empty where nothing can be known.
    """
    route = path.removeprefix("/v1")
    previous = body.get("previous_response_id")
    if isinstance(previous, str):
        return [response_digest(previous)]
    if route == "/completions":
        return list(_chain((), _pieces(body.get("prompt"))))
    turns = body.get("input" if route.startswith("/responses") else "messages")
    if isinstance(turns, str):
        turns = [turns]
    if not isinstance(turns, list):
        return []
    shared = [body.get(name) for name in ("tools", "system", "instructions")]
    lead = next((n for n, turn in enumerate(turns) if not _is_system(turn)), len(turns))
    return list(_chain((*shared, *turns[:lead]), turns[lead:]))


def response_digest(name: str) -> bytes:
    """What stands for a stored response, and so for all that led to it."""
    return blake2b(b"response " + name.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Homes:
    """The replica that last had each beginning; the longest unused ones are forgotten."""

    def __init__(self, most: int = _MOST) -> None:
        self._most: Final = most
        self._homes: OrderedDict[bytes, str] = OrderedDict()

    def find(self, digests: Sequence[bytes], present: Iterable[str]) -> str | None:
        """Of the replicas that are there, the one with the longest beginning of the request."""
        there = set(present)
        for digest in reversed(digests):
            replica = self._homes.get(digest)
            if replica in there:
                return replica
        return None

    def note(self, digests: Iterable[bytes], replica: str) -> None:
        """The replica has these now."""
        for digest in digests:
            self._homes[digest] = replica
            self._homes.move_to_end(digest)
        while len(self._homes) > self._most:
            self._homes.popitem(last=False)


def _is_system(turn: object) -> bool:
    return isinstance(turn, dict) and turn.get("role") in ("system", "developer")


def _pieces(prompt: object) -> Sequence[object]:
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        prompt = prompt[0]
    if not isinstance(prompt, str | list):
        return []
    step = _CHARACTERS if isinstance(prompt, str) else _IDS
    return [prompt[start : start + step] for start in range(0, len(prompt), step)][:_MOST_PIECES]


def _chain(shared: Sequence[object], turns: Sequence[object]) -> Iterator[bytes]:
    digest = _digest(b"", list(shared))
    for turn in turns:
        digest = _digest(digest, turn)
        yield digest


def _digest(before: bytes, value: object) -> bytes:
    text = json.dumps(_lasting(value), sort_keys=True)
    return blake2b(before + text.encode(), digest_size=16).digest()


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(item) for name, item in value.items() if name != _MOVED}
    if isinstance(value, list) and value and not isinstance(value[0], int):
        return [_lasting(item) for item in value]
    return value
