"""serve: listen, answer, and end in good order on SIGTERM."""

import asyncio
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from ninfer.errors import UsageError
from ninfer.log import get_logger
from ninfer.server.app import create_app
from ninfer.server.keys import KeyRing
from ninfer.server.service import Service

_log = get_logger(__name__)
_BACKLOG: Final = 2048
# Idle connections of clients that keep them are closed after so many seconds.
_IDLE_SECONDS: Final = 75
_LOOK_SECONDS: Final = 0.5


class _Server(uvicorn.Server):
    """Ends requests under way before it closes its port, so that probes see it go."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], object]) -> None:
        super().__init__(config)
        self._drain = drain
        self._told = False

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The first SIGTERM or SIGINT drains, the second one ends at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        heard = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self.handle_exit) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._told:
            self.should_exit = self.force_exit = True
            return
        self._told = True
        self._drain()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises UsageError naming the address when that fails."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Only where the protocol is named does asyncio send small pieces at once; else the kernel holds
    # the second one, a body or an event, for the 40 ms until the first is acknowledged.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(f"--host {host} --port {port}: {error.strerror}") from None
    listener.setblocking(False)
    return listener


async def serve(
    service: Service,
    listener: socket.socket,
    started: Callable[[Callable[[], None]], object] = lambda stop: None,
    keys: KeyRing | None = None,
) -> None:
    """Serve until a signal asks to end. `started` is given what a signal would call.

    With --restart it also ends when its engine has failed for good, to be started again. `keys`
    stands in for those of the options.
    """
    server = server_of(
        create_app(service, keys), lambda: service.drain(service.options.drain_s), started
    )
    address = listener.getsockname()
    _log.info("serving %s at http://%s:%d", service.model, address[0], address[1])
    watch = asyncio.get_running_loop().create_task(_end_with_engine(service, server))
    await server.serve([listener])
    watch.cancel()


def server_of(
    app: ASGIApp,
    drain: Callable[[], Awaitable[None]],
    started: Callable[[Callable[[], None]], object],
) -> uvicorn.Server:
    """What serves an app on the running loop; a signal, or what `started` is given, drains it."""
    loop = asyncio.get_running_loop()
    drains: list[asyncio.Task[None]] = []

    async def end() -> None:
        await drain()
        server.should_exit = True

    def begin() -> None:
        drains.append(loop.create_task(end()))

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=1,
        lifespan="on",
    )
    server = _Server(config, lambda: loop.call_soon_threadsafe(begin))
    started(begin)
    return server


async def _end_with_engine(service: Service, server: uvicorn.Server) -> None:
    """End the server some time after its engine has failed, so that health tells of it first."""
    while service.options.restart:
        await asyncio.sleep(_LOOK_SECONDS)
        if service.engine.has_failed:
            await asyncio.sleep(_LOOK_SECONDS)
            server.should_exit = True
            return
