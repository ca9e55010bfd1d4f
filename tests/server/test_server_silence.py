"""Silence: tokens of which a client is shown nothing do not put off a sign of life."""

import asyncio
from typing import Any

from ninfer.engine.generations import Generations
from ninfer.request import TextDelta
from ninfer.server.reply import stream

SILENCE = 0.05
TOKEN = 0.005  # seconds
TOKENS = 40


class Busy:
    """An inbox in which tokens lie again and again, none of which gives an event."""

    woken = 0

    def take(self) -> list[Any]:
        return []

    async def wait(self, timeout: float | None) -> bool:
        self.woken += 1
        assert self.woken < 1000, "the time never ran out"
        await asyncio.sleep(TOKEN)
        return True


def test_tokens_without_events_do_not_put_off_the_end_of_a_wait() -> None:
    inbox = Busy()
    generations: Any = Generations
    running = generations(inbox, [(object(), None)], 0.0, lambda sequences: None)
    assert asyncio.run(running.news(SILENCE)) == []
    assert inbox.woken >= 1


class Thinking:
    """An exchange whose events belong to a thought."""

    ended = False
    left = TOKENS

    async def news(self, timeout: float) -> list[Any]:
        await asyncio.sleep(TOKEN)
        self.left -= 1
        self.ended = not self.left
        return [(0, TextDelta("reasoning", "hm"))]

    def __enter__(self) -> "Thinking":
        return self

    def __exit__(self, *given: object) -> None:
        pass


class Discreet:
    """Shows no thoughts."""

    def begin(self) -> bytes:
        return b""

    def events(self, news: list[Any]) -> bytes:
        return b""

    def idle(self) -> bytes:
        return b"alive"

    def end(self) -> bytes:
        return b"end"

    def failed(self, fault: object) -> bytes:
        raise AssertionError(fault)


def test_a_thought_that_is_not_shown_is_silence() -> None:
    exchange: Any = Thinking()
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    response: Any = stream(exchange, Discreet(), SILENCE)
    asyncio.run(response({}, None, send))
    pieces = [piece for piece in sent if piece]
    assert pieces[-1] == b"end"
    # Never more often than one for each silence, and at least one: the thought takes four of them.
    assert 1 <= pieces.count(b"alive") < TOKENS
