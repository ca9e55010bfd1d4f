"""A server on a socket for tests: a micro model that writes what a test asks it to write."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai

from ninfer.engine import AsyncEngine, Engine, EngineOptions, GenerationOptions
from ninfer.request import PreparedPrompt, TokenForcer
from ninfer.server.journal import Spans
from ninfer.server.keys import KeyRing
from ninfer.server.options import ServerOptions
from ninfer.server.responses.store import StoredResponses
from ninfer.server.serve import listen, serve
from ninfer.server.service import Service

CHAT = "/v1/chat/completions"
END = "<|im_end|>"


class Script:
    """A `TokenForcer` by which the model writes given ids first."""

    is_done = False

    def __init__(self, ids: list[int], seconds: float = 0.0) -> None:
        self._ids, self._place, self._seconds = ids, 0, seconds

    def forced(self) -> int | None:
        time.sleep(self._seconds)
        return self._ids[self._place] if self._place < len(self._ids) else None

    def advance(self, token_id: int) -> None:
        self._place += 1


@dataclass
class Scripts:
    """What the model writes, by a word of the prompt. `pace` is the seconds of each token."""

    texts: dict[str, str] = field(default_factory=dict)
    pace: dict[str, float] = field(default_factory=dict)

    def install(self, engine: Engine) -> None:
        own = engine._forcer

        def forcer(prompt: PreparedPrompt, options: GenerationOptions) -> TokenForcer | None:
            said = prompt.text.partition("<|im_start|>user\n")[2] or prompt.text
            for word, text in self.texts.items():
                if word in said:
                    return Script(engine.text.encode(text), self.pace.get(word, 0.0))
            return own(prompt, options)

        engine._forcer = forcer  # a test's own model


@dataclass
class Server:
    """A running server."""

    url: str
    port: int
    service: Service
    loop: asyncio.AbstractEventLoop
    engine: Engine
    scripts: Scripts

    def client(self, **options: Any) -> openai.OpenAI:
        options = {"api_key": "none", "max_retries": 0, "timeout": 60, **options}
        return openai.OpenAI(base_url=f"{self.url}/v1", **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        with httpx.Client(timeout=60) as client:
            return client.post(f"{self.url}{path}", json=body, **options)

    def events(self, path: str, body: Mapping[str, Any]) -> list[Any]:
        """The data of all events of a stream; [DONE] is the last of them."""
        found: list[Any] = []
        with (
            httpx.Client(timeout=60) as client,
            client.stream("POST", f"{self.url}{path}", json={**body, "stream": True}) as reply,
        ):
            assert reply.status_code == 200, reply.read()
            for line in reply.iter_lines():
                if line.startswith("data: "):
                    text = line.removeprefix("data: ")
                    found.append(text if text == "[DONE]" else json.loads(text))
        return found

    def settled(self, seconds: float = 60.0) -> None:
        """Wait until nothing runs, waits or has a place."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            load = self.engine.snapshot().load
            if not (load.running or load.waiting or self.service.active):
                return
            time.sleep(0.01)
        raise AssertionError(f"still busy: {self.engine.describe()}, {self.service.active}")


@contextmanager
def serving(
    artifact: Path,
    *,
    engine: Mapping[str, Any] | None = None,
    send_buffer: int = 0,
    spans: Spans | None = None,
    **options: Any,
) -> Iterator[Server]:
    """Serve an artifact on a free port of this machine, on a thread of its own."""
    settings = {"max_context": 1024, "max_concurrency": 4, "device": "cpu", **(engine or {})}
    loaded = Engine.load(EngineOptions(artifact=artifact, **settings))
    with serving_engine(loaded, send_buffer=send_buffer, spans=spans, **options) as server:
        yield server


@contextmanager
def serving_engine(
    engine: Engine,
    *,
    send_buffer: int = 0,
    spans: Spans | None = None,
    keys: KeyRing | None = None,
    responses: StoredResponses | None = None,
    scripts: Scripts | None = None,
    **options: Any,
) -> Iterator[Server]:
    """Serve a loaded engine. `send_buffer` bounds what the system takes for slow readers."""
    scripts = scripts or Scripts()
    scripts.install(engine)
    # A machine that stalls must not put signs of life between the events a test counts.
    usual = {"port": 0, "model_id": "tiny", "drain_s": 0, "keep_alive_ms": 600_000}
    chosen = ServerOptions(**{**usual, **options})
    service = Service(AsyncEngine(engine), chosen, spans, responses)
    listener = listen(chosen.host, chosen.port)
    if send_buffer:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    port = listener.getsockname()[1]
    loop = asyncio.new_event_loop()
    stop: list[Any] = []
    thread = threading.Thread(
        target=lambda: loop.run_until_complete(serve(service, listener, stop.append, keys))
    )
    thread.start()
    try:
        _await_port(port)
        yield Server(f"http://127.0.0.1:{port}", port, service, loop, engine, scripts)
    finally:
        loop.call_soon_threadsafe(stop[0])
        thread.join(120)
        assert not thread.is_alive(), "the server did not end"
        loop.close()


def _await_port(port: int) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health", timeout=60).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.02)
    raise AssertionError("the server did not begin")


def text_of(*words: str) -> list[dict[str, Any]]:
    """A conversation of one user message."""
    return [{"role": "user", "content": " ".join(words)}]


def send(server: Server, body: dict[str, Any], path: str = CHAT) -> socket.socket:
    """A connection on which a request has been sent and nothing read."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    connection.sendall(head.encode() + data)
    return connection


def until(what: Any, seconds: float = 60.0) -> None:
    """Wait until something is true, which it will be."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


def cancelled(server: Server) -> float:
    """How many requests the server counts as cancelled."""
    name = 'ninfer_requests_total{outcome="cancelled"} '
    lines = server.service.metrics.page().decode().splitlines()
    return next((float(line[len(name) :]) for line in lines if line.startswith(name)), 0.0)


def raw(port: int, data: bytes, *, seconds: float = 60.0) -> bytes:
    """Send bytes and read until the other side closes or is silent."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(data)
        pieces = []
        try:
            while piece := connection.recv(65536):
                pieces.append(piece)
        except TimeoutError:
            pass
        return b"".join(pieces)
