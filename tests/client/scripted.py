"""A server that answers by script, over a real socket."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Handle = Callable[["ScriptedRequest"], None]


class ScriptedRequest(BaseHTTPRequestHandler):
    """One request. The script reads `body` and calls `reply` or `stream`."""

    protocol_version = "HTTP/1.1"
    body: Any = None

    def log_message(self, *_: object) -> None:
        pass

    def _run(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.body = json.loads(data) if data else None
        self.server.seen.append((self.command, self.path, dict(self.headers), self.body))
        try:
            self.server.script(self)
        except (BrokenPipeError, ConnectionResetError):
            self.server.left.set()
            self.close_connection = True

    do_GET = do_POST = _run

    def reply(self, value: object, status: int = 200) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def send(self, data: object) -> None:
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        self.wfile.write(f"data: {text}\n\n".encode())
        self.wfile.flush()

    def stream(self, *chunks: object) -> None:
        self.begin_stream()
        for chunk in chunks:
            self.send(chunk)


class ScriptedServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, script: Handle) -> None:
        super().__init__(("127.0.0.1", 0), ScriptedRequest)
        self.script = script
        self.seen: list[tuple[str, str, dict[str, str], Any]] = []
        self.left = threading.Event()  # a client went away in the middle

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        pass


@pytest.fixture
def scripted_server() -> Iterator[Callable[[Handle], ScriptedServer]]:
    """Starts a server that calls the given function for each request."""
    servers: list[ScriptedServer] = []

    def start(script: Handle) -> ScriptedServer:
        server = ScriptedServer(script)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def delta(**members: object) -> dict[str, object]:
    """A chunk with one delta."""
    return {"choices": [{"index": 0, "delta": members, "finish_reason": None}]}


def finish(reason: str = "stop") -> dict[str, object]:
    """The last chunk of a choice."""
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


USAGE = {
    "choices": [],
    "usage": {
        "prompt_tokens": 12,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 3},
    },
}
