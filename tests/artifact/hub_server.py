"""A hub-like HTTP server on the loopback, with the faults that real ones show."""

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "a" * 40
OLD_COMMIT = "b" * 40


@dataclass
class HubState:
    """What the server holds and how it misbehaves; tests change it while it runs."""

    content: bytes
    repository: str = "owner/name"
    file: str = "m.ninfer"
    # Revision -> commit and content.
    revisions: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    break_after: list[int] = field(default_factory=list)  # bytes that the next answers send
    statuses: list[int] = field(default_factory=list)  # what the next downloads answer
    ignore_range: bool = False
    send_other: bytes | None = None  # bytes sent in place of the content stated in the headers
    delay: float = 0.0  # seconds before each block
    stalls: list[float] = field(default_factory=list)  # seconds before the next answers
    states_hash: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    authorization: set[str | None] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.revisions |= {"main": (COMMIT, self.content), COMMIT: (COMMIT, self.content)}


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: HubState

    def do_HEAD(self) -> None:
        found = self._find()
        if found is not None:
            commit, content = found
            self.send_response(200)
            self._describe(commit, content)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()

    def do_GET(self) -> None:
        state = self.state
        wanted = self.headers.get("Range")
        state.requests.append((self.path, wanted))
        state.authorization.add(self.headers.get("Authorization"))
        time.sleep(state.stalls.pop(0) if state.stalls else 0)
        if state.statuses:
            self._empty(state.statuses.pop(0))
            return
        found = self._find()
        if found is None:
            return
        commit, content = found
        sent = content if state.send_other is None else state.send_other
        start = int(wanted[6:-1]) if wanted and not state.ignore_range else 0
        self.send_response(206 if start else 200)
        self._describe(commit, content)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(sent) - 1}/{len(sent)}")
        self.send_header("Content-Length", str(len(sent) - start))
        self.end_headers()
        self._send(sent[start:])

    def _send(self, data: bytes) -> None:
        limit = self.state.break_after.pop(0) if self.state.break_after else len(data)
        for at in range(0, min(limit, len(data)), 65_536):
            time.sleep(self.state.delay)
            try:
                self.wfile.write(data[at : min(at + 65_536, limit)])
            except (BrokenPipeError, ConnectionResetError):
                # A client that was killed, or that waited long enough.
                self.close_connection = True
                return
        if limit < len(data):
            self.close_connection = True

    def _find(self) -> tuple[str, bytes] | None:
        owner, name, word, revision, file = self.path.strip("/").split("/", 4)
        if f"{owner}/{name}" != self.state.repository or word != "resolve":
            self._empty(404, "RepoNotFound")
        elif revision not in self.state.revisions:
            self._empty(404, "RevisionNotFound")
        elif file != self.state.file:
            self._empty(404, "EntryNotFound")
        else:
            return self.state.revisions[revision]
        return None

    def _describe(self, commit: str, content: bytes) -> None:
        self.send_header("X-Repo-Commit", commit)
        digest = hashlib.sha256(content).hexdigest() if self.state.states_hash else "abc"
        self.send_header("ETag", f'"{digest}"')
        self.send_header("X-Linked-ETag", f'"{digest}"')
        self.send_header("X-Linked-Size", str(len(content)))

    def _empty(self, status: int, code: str = "") -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a test's output stays its own."""


@contextmanager
def hub_server(state: HubState) -> Iterator[str]:
    """Serve `state` from a free port of the loopback; yields the endpoint."""
    answers = type("Answers", (_Answers,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), answers)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
