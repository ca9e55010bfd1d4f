"""A replica's event stream on its way: whole events only, and an end when the replica dies."""

import json
from typing import Any, Final

from ninfer.server.errors import (
    ANTHROPIC,
    Fault,
    anthropic_body,
    openai_body,
    openai_message,
    protocol_of,
)
from ninfer.server.sse import DONE, data, event

_GAP: Final = b"\n\n"


class PassedStream:
    """Bytes of events as they come in; what goes out ends with a whole event."""

    def __init__(self, path: str, request_id: str) -> None:
        self._path: Final = path
        self._request_id: Final = request_id
        self._held = b""
        self._first = b""
        self._last = b""

    def pass_on(self, piece: bytes) -> bytes:
        """The events that this piece completes."""
        whole, gap, self._held = (self._held + piece).rpartition(_GAP)
        if not gap:
            return b""
        events = [part for part in whole.split(_GAP) if not part.startswith(b":")]
        if events:
            self._first = self._first or events[0]
            self._last = events[-1]
        return whole + gap

    def rest(self) -> bytes:
        """What came after the last whole event of a stream that ended by itself."""
        return self._held

    @property
    def response_name(self) -> str | None:
        """The id of the stored response that the stream is of."""
        name = _object(_data(self._first).get("response")).get("id")
        return name if isinstance(name, str) else None

    def broken(self, fault: Fault) -> bytes:
        """The protocol's event of an error, for a stream that will not go on."""
        if protocol_of(self._path) == ANTHROPIC:
            return event(anthropic_body(fault, self._request_id))
        if self._path.removeprefix("/v1").startswith("/responses"):
            return self._failed_response(fault)
        return data(openai_body(fault)) + DONE

    def _failed_response(self, fault: Fault) -> bytes:
        """The response as it was announced, failed, under the next number."""
        response = _object(_data(self._first).get("response"))
        number = _data(self._last).get("sequence_number")
        error = {"code": fault.code, "message": openai_message(fault)}
        return event(
            {
                "type": "response.failed",
                "sequence_number": number + 1 if isinstance(number, int) else 0,
                "response": {**response, "status": "failed", "error": error},
            }
        )


def _data(text: bytes) -> dict[str, Any]:
    """The JSON object of an event; empty for one without."""
    for part in text.split(b"\n"):
        if part.startswith(b"data: {"):
            return _object(json.loads(part.removeprefix(b"data: ")))
    return {}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
