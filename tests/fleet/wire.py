"""The vendor over a real socket, with faults before or after a request takes effect."""

import json
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from tests.fleet.vendor import Vendor, kind_of


@dataclass(frozen=True)
class Fault:
    """What happens to one request: whether it takes effect, and what the client gets."""

    name: str
    effect: bool
    status: int = 0
    body: str = ""
    how: str = "answer"  # or "reset", "silence"


HTML = "<html><body>Bad gateway</body></html>"
FAULTS = (
    Fault("429 text", False, 429, "API requests too frequent"),
    Fault("429 json", False, 429, '{"detail": "endpoint threshold=2.0"}'),
    Fault("500", False, 500, '{"success": false, "error": "internal", "msg": "oops"}'),
    Fault("503 page", False, 503, HTML),
    Fault("404 page", False, 404, HTML),
    Fault("410", False, 410, '{"success": false, "error": "deprecated_endpoint", "msg": "gone"}'),
    Fault("401", False, 401, '{"success": false, "error": "auth_error", "msg": "Invalid key"}'),
    Fault("false with 200", False, 200, '{"success": false, "error": "x", "msg": "no"}'),
    Fault("reset before", False, how="reset"),
    Fault("silence before", False, how="silence"),
    Fault("reset after", True, how="reset"),
    Fault("silence after", True, how="silence"),
    Fault("500 after", True, 500, HTML),
    Fault("garbage after", True, 200, "\x00\x01garbage"),
    Fault("empty after", True, 200, ""),
    Fault("object after", True, 200, "{}"),
    Fault("null after", True, 200, "null"),
    Fault("list after", True, 200, "[]"),
    Fault("false after", True, 200, '{"success": false}'),
)
BY_NAME = {fault.name: fault for fault in FAULTS}


class Wire(ThreadingHTTPServer):
    """Serves a vendor. `fault(number, kind)` is asked for each request, counted from 0.

    `around(number, moment)` is called before a request takes effect, after it has, and when it is
    answered; tests kill processes there.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, vendor: Vendor) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.vendor = vendor
        self.fault: Callable[[int, str], Fault | None] = lambda number, kind: None
        self.around: Callable[[int, str, str], None] = lambda number, kind, moment: None
        vendor.root = self.root
        self.count = 0
        self.counting = threading.Lock()
        self.bodies: list[str] = []

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """A client that left is no error of a scene."""


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Wire
    wbufsize = 65536  # else each answer is two packets, and the second waits for the first

    def log_message(self, *_: object) -> None:
        pass

    def _run(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        body = json.loads(data) if data else None
        parts = urlsplit(self.path)
        if parts.path.startswith("/_control/"):
            self._control(parts.path, body)
            return
        if parts.path.startswith("/_logs/"):
            self._send(200, self.server.vendor.logs.get(int(parts.path.split("/")[-1]), "started"))
            return
        with self.server.counting:
            number = self.server.count
            self.server.count += 1
            self.server.bodies.append(f"{self.command} {self.path} {data.decode()}")
        kind = kind_of(self.command, parts.path)
        fault = self.server.fault(number, kind)
        self.server.around(number, kind, "before")
        key = (self.headers.get("authorization") or "").removeprefix("Bearer ")
        status, answer = 0, None
        if fault is None or fault.effect:
            query = dict(parse_qsl(parts.query))
            status, answer = self.server.vendor.answer(self.command, parts.path, query, body, key)
        self.server.around(number, kind, "after")
        if fault is not None:
            self._fail(fault)
        else:
            self._send(status, answer if isinstance(answer, str) else json.dumps(answer))
        self.server.around(number, kind, "answered")

    do_GET = do_POST = do_PUT = do_DELETE = _run

    def _fail(self, fault: Fault) -> None:
        if fault.how == "answer":
            self._send(fault.status, fault.body)
            return
        if fault.how == "silence":
            self.send_response(504)
            self.send_header("x-silence", "yes")
            self.send_header("content-length", "0")
            self.end_headers()
            self.close_connection = True
            return
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def _send(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def _control(self, path: str, body: object) -> None:
        """Time and machines for a process of its own, which cannot share ours."""
        assert isinstance(body, dict)
        vendor = self.server.vendor
        if path == "/_control/clock":
            vendor.clock.sleep(body["sleep"])
            self._send(200, json.dumps(vendor.clock.now()))
        else:
            self._send(200, json.dumps(vendor.box(body["machine"], body["command"])))
