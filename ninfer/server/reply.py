"""From an exchange to bytes: a stream of a protocol's events, or one object at the end."""

import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol

from starlette.responses import Response

from ninfer.server.answer import Answer, put_together
from ninfer.server.errors import Fault, dump, fault_of
from ninfer.server.exchange import Exchange, Numbered
from ninfer.server.sse import EventStream


class StreamWriter(Protocol):
    """A protocol's events as bytes. Each method gives whole events, or nothing."""

    def begin(self) -> bytes:
        """What is sent as soon as the engine has begun, before any token."""

    def events(self, news: list[Numbered]) -> bytes:
        """What these events make certain."""

    def idle(self) -> bytes:
        """A sign of life."""

    def end(self) -> bytes:
        """The end of a stream whose answers are whole."""

    def failed(self, fault: Fault) -> bytes:
        """The end of a stream that an error broke off."""


def stream(exchange: Exchange, writer: StreamWriter, keep_alive: float) -> EventStream:
    """Send events as they come, and a sign of life after `keep_alive` silent seconds."""
    return EventStream(_pieces(exchange, writer, keep_alive))


async def _pieces(
    exchange: Exchange, writer: StreamWriter, keep_alive: float
) -> AsyncGenerator[bytes, None]:
    try:
        with exchange:
            yield writer.begin()
            sent = time.monotonic()
            while not exchange.ended:
                news = await exchange.news(max(sent + keep_alive - time.monotonic(), 0))
                piece = writer.events(news) if news else b""
                # A thought that is not shown is silence too, however many tokens it has.
                if not piece and time.monotonic() - sent >= keep_alive:
                    piece = writer.idle()
                if piece:
                    sent = time.monotonic()
                    yield piece
            yield writer.end()
    except Exception as error:  # noqa: BLE001  # the exchange has told the log of it
        yield writer.failed(fault_of(error))


async def collect(exchange: Exchange) -> list[Answer]:
    """All answers, whole. Raises what broke them off."""
    answers = [Answer() for _ in range(exchange.ask.answers)]
    with exchange:
        while not exchange.ended:
            put_together(await exchange.news(), answers)
    return answers


async def whole(exchange: Exchange, body: Callable[[list[Answer]], Any]) -> Response:
    """One JSON object when all answers are whole."""
    return json_response(body(await collect(exchange)))


def json_response(value: Any, status: int = 200) -> Response:
    """A JSON answer."""
    return Response(dump(value), status, media_type="application/json")
