"""A machine behind a real SSH server on loopback: commands run in a shell, ports are forwarded."""

import asyncio
import subprocess
import threading
from pathlib import Path
from typing import Any

import asyncssh

from ninfer.fleet.dead_man import FOLDER


class SshServer:
    """Lets one key in. Commands find `/root/.ninfer` at `folder`. Runs in a thread of its own.

    With `environ` commands have that environment, as on a machine of its own.
    """

    def __init__(
        self, folder: Path, public_key: str, environ: dict[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.environ = environ
        self.commands: list[str] = []
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self._public = public_key
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server: Any = None
        self._links: list[asyncssh.SSHServerConnection] = []
        self.port = 0
        self.start()

    def start(self) -> None:
        """Listen at a new port."""
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(60)

    async def _listen(self) -> int:
        outer = self

        class Server(asyncssh.SSHServer):
            def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
                outer._links.append(conn)

            def connection_requested(self, *_: object) -> bool:
                return True

        self._server = await asyncssh.create_server(
            Server,
            "127.0.0.1",
            0,
            server_host_keys=[self.host_key],
            authorized_client_keys=asyncssh.import_authorized_keys(self._public),
            process_factory=self._process,
            encoding=None,
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def _process(self, process: "asyncssh.SSHServerProcess[bytes]") -> None:
        command = process.command or ""
        self.commands.append(command)
        given = await process.stdin.read()
        moved = command.replace(FOLDER, str(self.folder))
        done = await asyncio.to_thread(
            subprocess.run,
            ["sh", "-c", moved],
            input=given,
            capture_output=True,
            env=self.environ,
        )
        process.stdout.write(done.stdout)
        process.stderr.write(done.stderr)
        process.exit(done.returncode)

    def stop(self) -> None:
        """Stop listening and break every link."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(60)

    async def _stop(self) -> None:
        self._server.close()
        for link in self._links:
            link.abort()
        self._links.clear()
        await asyncio.sleep(0.05)

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        ending = self._loop.shutdown_default_executor()
        asyncio.run_coroutine_threadsafe(ending, self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def write_key(folder: Path) -> Path:
    """A new key pair; the path of its private half."""
    key = asyncssh.generate_private_key("ssh-ed25519", comment="someone at home")
    private = folder / "id"
    key.write_private_key(str(private))
    key.write_public_key(str(private) + ".pub")
    private.chmod(0o600)
    return private
