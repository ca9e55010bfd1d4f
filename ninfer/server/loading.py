"""What the port answers while weights are read: that it is loading, and when to ask again.

Nothing of the server exists yet, and reading may keep this thread busy for minutes; so plain
`http.server` answers, on threads of its own, until the engine is there.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from uuid import uuid4

from ninfer.server.errors import Fault, dump, error_body

_RETRY_SECONDS: Final = 2
# Of a request that is not read, so that its sender gets to read the answer.
_LONGEST_BODY: Final = 1 << 20
_SECONDS: Final = 5.0
_FAULT: Final = Fault(503, "loading", "the model is being loaded; ask again in a while")


class _Handler(BaseHTTPRequestHandler):
    """Refuses every request with 503."""

    timeout = _SECONDS

    def _refuse(self) -> None:
        path = self.path.partition("?")[0]
        request_id = f"req_{uuid4().hex}"
        status, body = error_body(_FAULT, path, request_id)
        if path == "/health":
            status, body = 503, dump({"status": "loading"})
        self.send_response(status)
        for name, value in (
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("retry-after", str(_RETRY_SECONDS)),
            ("x-request-id", request_id),
            ("connection", "close"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self._take_rest()

    def _take_rest(self) -> None:
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_WR)
        left = _LONGEST_BODY
        while left > 0 and (data := self.connection.recv(1 << 16)):
            left -= len(data)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = _refuse

    def log_message(self, *_: object) -> None:
        """Silent: probes ask every second."""


class _Server(ThreadingHTTPServer):
    """Answers on a socket that others made and go on with."""

    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        """A client that went away is no news."""


@contextmanager
def answering(listener: socket.socket) -> Iterator[None]:
    """Answer on `listener` until the block ends; the socket stays open."""
    server = _Server(listener.getsockname()[:2], _Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
