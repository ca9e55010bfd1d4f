"""Server-sent events: framing of JSON, and a response that sends pieces as they come."""

import json
from collections.abc import AsyncGenerator
from json.encoder import encode_basestring
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

KEEP_ALIVE: Final = b": keep-alive\n\n"
DONE: Final = b"data: [DONE]\n\n"
# Legal in JSON, and line ends to str.splitlines and to clients that use it.
_LINE_ENDS: Final = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def quoted(text: str) -> str:
    """A text as a JSON string of one line, whatever counts as a line end."""
    shown = encode_basestring(text)
    return shown if shown.isascii() else shown.translate(_LINE_ENDS)


def line_of(value: Any) -> str:
    """JSON of one line, whatever counts as a line end."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else text.translate(_LINE_ENDS)


def data(value: Any) -> bytes:
    """An event without a name."""
    return f"data: {line_of(value)}\n\n".encode()


def event(value: dict[str, Any]) -> bytes:
    """An event whose name is the `type` of the value."""
    return f"event: {value['type']}\ndata: {line_of(value)}\n\n".encode()


class EventStream(Response):
    """Sends pieces as they come; the generator is closed however the sending ends."""

    def __init__(self, pieces: AsyncGenerator[bytes, None]) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers(
            {
                "content-type": "text/event-stream; charset=utf-8",
                "cache-control": "no-cache",
                "x-accel-buffering": "no",
            }
        )
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        try:
            async for piece in self._pieces:
                if piece:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            await self._pieces.aclose()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
