"""One fixed local address for a machine's server: connections over SSH, found anew when lost."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import asyncssh

from ninfer.errors import HostBrokenError, ProviderError, UsageError

REMOTE_PORT: Final = 8080
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
# A client that comes while the link is away waits for it this long.
_PATIENCE: Final = 60.0
_CHUNK: Final = 65536

Link = asyncssh.SSHClientConnection
Opening = Callable[[], Awaitable[Link]]


class Tunnel:
    """Forwards a local port. `opening` looks the address up and logs in, each time anew.

    What it raises beyond HostBrokenError and ProviderError ends the tunnel: the machine is gone, or
    its host key changed.
    """

    def __init__(
        self, opening: Opening, port: int, say: Callable[[str], None], remote: int = REMOTE_PORT
    ) -> None:
        self._opening = opening
        self._port = port
        self._say = say
        self._remote = remote
        self._link: Link | None = None
        self._linked = asyncio.Event()

    async def run(self, ready: Callable[[int], None] = lambda port: None) -> None:
        """Serve until cancelled. `ready` is told the local port once it listens.

        Raises UsageError when the port is taken.
        """
        try:
            server = await asyncio.start_server(self._client, "127.0.0.1", self._port)
        except OSError as error:
            raise UsageError(f"--port {self._port}: {error.strerror}; choose another") from None
        ready(server.sockets[0].getsockname()[1])
        try:
            await self._keep_linked()
        finally:
            server.close()

    async def _keep_linked(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                link = await self._opening()
            except (HostBrokenError, ProviderError) as error:
                self._say(f"{error}; again in {pause:.0f} s")
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            self._link = link
            self._linked.set()
            self._say("linked")
            try:
                await link.wait_closed()
            finally:
                self._linked.clear()
                link.abort()
            self._say("the link broke")

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.wait_for(self._far(), _PATIENCE)
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
            far_writer.close()
        except (OSError, asyncssh.Error, TimeoutError, asyncio.CancelledError):
            pass  # the client sees its connection end, and asks again; at the end nobody is told
        finally:
            writer.close()

    async def _far(
        self,
    ) -> tuple["asyncssh.SSHReader[bytes]", "asyncssh.SSHWriter[bytes]"]:
        """The server's end of a connection, over a link that lives."""
        while True:
            await self._linked.wait()
            link = self._link
            assert link is not None
            try:
                return await link.open_connection("127.0.0.1", self._remote)
            except asyncssh.ChannelOpenError:
                if link is self._link and self._linked.is_set():
                    raise  # nobody listens on the machine


async def _pump(
    reader: "asyncio.StreamReader | asyncssh.SSHReader[bytes]",
    writer: "asyncio.StreamWriter | asyncssh.SSHWriter[bytes]",
) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
