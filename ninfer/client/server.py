"""One server of the OpenAI protocol: its models, and answers as they come."""

import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

import httpx

from ninfer.client.cards import ModelCard, parse_models
from ninfer.client.chunks import ChunkReader, error_message
from ninfer.client.events import ChatEvent
from ninfer.client.sse import event_data
from ninfer.errors import ServerError
from ninfer.version import VERSION

# A long prompt may take minutes before the first byte; a dead server is known in seconds.
_TIMEOUT: Final = httpx.Timeout(600.0, connect=10.0)
_LONGEST_BODY: Final = 2000


class ChatServer:
    """A server at `root`, an address without `/v1`. Every failure is a ServerError naming it.

    `key` is sent as a bearer token and shown nowhere; `key_env` is the variable that a refusal
    advises to set. At most `connections` requests are under way at once, further ones wait.
    """

    def __init__(
        self, root: str, key: str | None = None, key_env: str = "", *, connections: int = 100
    ) -> None:
        self.root = root
        self._advice = f"; set {key_env} to the server's key" if key_env else ""
        headers = {"User-Agent": f"ninfer/{VERSION}"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        # Proxies of the environment are for the world outside, not for this machine.
        local = httpx.URL(root).host in ("127.0.0.1", "localhost", "::1")
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._http = httpx.Client(
            timeout=_TIMEOUT, headers=headers, trust_env=not local, limits=limits
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def models(self) -> list[ModelCard]:
        """The models it lists. Raises ServerError; `status` is 401 when it wants another key."""
        with self._errors():
            response = self._http.get(f"{self.root}/v1/models")
            self._check(response)
        try:
            return parse_models(response.json())
        except ValueError:
            raise ServerError(
                f"{self.root}: /v1/models is not JSON; is this a server of the OpenAI protocol?"
            ) from None

    def page(self, path: str) -> str | None:
        """The text at a path, `/metrics` for one; None where the server has nothing there."""
        with self._errors():
            response = self._http.get(f"{self.root}{path}")
        return response.text if response.is_success else None

    def stream(self, body: Mapping[str, Any]) -> Generator[ChatEvent, None, None]:
        """The events of one chat completion; `body` is the request without `stream`.

        Closing the iterator closes the connection, by which the server knows that nobody waits.
        """
        request = {**body, "stream": True, "stream_options": {"include_usage": True}}
        url = f"{self.root}/v1/chat/completions"
        with self._errors(), self._http.stream("POST", url, json=request) as response:
            self._check(response)
            kind = response.headers.get("content-type", "")
            if not kind.startswith("text/event-stream"):
                raise ServerError(f"{self.root}: answered with {kind or 'no type'}, not a stream")
            yield from ChunkReader(self.root).read(event_data(response.iter_bytes()))

    def _check(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        text = response.read().decode("utf-8", "replace")
        try:
            reason = error_message(json.loads(text))
        except ValueError:
            reason = None
        status = response.status_code
        shown = reason or " ".join(text.split()) or response.reason_phrase
        advice = self._advice if status in (401, 403) else ""
        raise ServerError(f"{self.root}: {status} {shown[:_LONGEST_BODY]}{advice}", status=status)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except httpx.ConnectError as error:
            raise ServerError(
                f"{self.root}: no server answers ({_reason(error)}); start one with 'ninfer serve "
                "ARTIFACT', or give its address"
            ) from None
        except httpx.TimeoutException:
            raise ServerError(
                f"{self.root}: no answer in time; is the server overloaded?"
            ) from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise ServerError(
                f"{self.root}: the connection broke ({_reason(error)}); ask again"
            ) from None


def _reason(error: Exception) -> str:
    return str(error).strip() or type(error).__name__
