"""A gateway on a socket for tests, before replicas that are servers of this process, or before
sockets that answer as a test says."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from serving import Scripts, Server, serving_engine

from ninfer.cluster.choice import AFFINITY
from ninfer.cluster.gateway import Gateway, gateway_app
from ninfer.cluster.keys import GatewayKeys
from ninfer.cluster.report import Report
from ninfer.cluster.roster import Roster
from ninfer.cluster.store import SharedResponses
from ninfer.engine import Engine, EngineOptions
from ninfer.server.options import ServerOptions
from ninfer.server.serve import listen, server_of

SECRET = "gateway-secret"


@dataclass
class RunningGateway:
    """A gateway; its roster is only touched on its loop."""

    url: str
    port: int
    roster: Roster
    loop: asyncio.AbstractEventLoop
    reports: dict[str, Report] = field(default_factory=dict)

    def tell(self, *reports: Report) -> None:
        """The reports of all replicas that there are now."""
        self.reports = {report.replica: report for report in reports}

        async def update() -> None:
            self.roster.update(reports)

        asyncio.run_coroutine_threadsafe(update(), self.loop).result(60)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", json=body, timeout=60, **options)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=60)


def report_of(name: str, port: int, *, beat: int = 0, serves: bool = True) -> Report:
    return Report(name, f"http://127.0.0.1:{port}", "tiny.ninfer", 4, beat, serves)


@contextmanager
def gateway(routing: str = AFFINITY, *, wait: float = 30.0, **options: Any) -> Iterator[Any]:
    """Serve a gateway that knows no replica yet."""
    chosen = ServerOptions(**{"port": 0, "drain_s": 0, **options})
    listener = listen(chosen.host, chosen.port)
    port = listener.getsockname()[1]
    loop = asyncio.new_event_loop()
    made: list[Any] = []
    stop: list[Callable[[], None]] = []
    begun = threading.Event()

    async def run() -> None:
        roster = Roster(routing, wait=wait, seed=0)
        core = Gateway(chosen, roster, SECRET)
        made.append(roster)
        server = server_of(gateway_app(core, chosen), core.drain, stop.append)
        begun.set()
        await server.serve([listener])

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    assert begun.wait(60)
    try:
        yield RunningGateway(f"http://127.0.0.1:{port}", port, made[0], loop)
    finally:
        loop.call_soon_threadsafe(stop[0])
        thread.join(60)
        assert not thread.is_alive(), "the gateway did not end"
        loop.close()


@dataclass
class ClusterServer(Server):
    """What tests of one server use, for a gateway and its replicas."""

    replicas: Sequence[Server] = ()

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=60)

    def settled(self, seconds: float = 60.0) -> None:
        for replica in self.replicas:
            replica.settled(seconds)


@contextmanager
def cluster(
    artifact: Path, folder: Path, replicas: int = 2, routing: str = AFFINITY, **options: Any
) -> Iterator[ClusterServer]:
    """Micro models behind a gateway, scripted alike, with one store of responses."""
    scripts = Scripts()
    with ExitStack() as held:
        running = []
        for _ in range(replicas):
            engine = Engine.load(
                EngineOptions(artifact=artifact, max_context=1024, max_concurrency=4, device="cpu")
            )
            store = SharedResponses(folder / "responses.sqlite", 1024, 64 << 20)
            held.callback(store.close)
            given = {"keys": GatewayKeys(SECRET), "responses": store, "scripts": scripts}
            running.append(held.enter_context(_replica(engine, given)))
        front = held.enter_context(gateway(routing, **options))
        front.tell(*(report_of(f"r{n}", server.port) for n, server in enumerate(running)))
        first = running[0]
        yield ClusterServer(
            front.url, front.port, first.service, first.loop, first.engine, scripts, running
        )


@contextmanager
def _replica(engine: Engine, given: dict[str, Any]) -> Iterator[Server]:
    with serving_engine(engine, **given) as server:
        yield server


class Socket:
    """A replica that answers each connection as the next of `acts` does; 0 bytes: it closes."""

    def __init__(self, *acts: Callable[[socket.socket, bytes], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.requests: list[bytes] = []
        self._acts = list(acts)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                data = _request(connection)
                if data:
                    self.requests.append(data)
                    self._acts.pop(0)(connection, data)


def _request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return data
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    sizes = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    size = int(sizes[0].partition(b":")[2]) if sizes else 0
    while len(body) < size:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def dies(connection: socket.socket, request: bytes) -> None:
    """Close without a word."""


def answers(body: bytes, status: str = "200 OK") -> Callable[[socket.socket, bytes], None]:
    """A whole JSON answer."""

    def act(connection: socket.socket, request: bytes) -> None:
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n"
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    return act


def breaks_off(*pieces: bytes) -> Callable[[socket.socket, bytes], None]:
    """A stream that is cut behind these pieces."""

    def act(connection: socket.socket, request: bytes) -> None:
        connection.sendall(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        for piece in pieces:
            connection.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")

    return act
