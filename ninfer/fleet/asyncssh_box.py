"""A machine behind SSH, by asyncssh: the pinned host key, our key alone, commands as text."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import asyncssh

from ninfer.errors import HostBrokenError, VerificationError
from ninfer.fleet.box import Ran, as_bytes, as_text
from ninfer.fleet.failures import NO_SSH
from ninfer.fleet.provider import Address
from ninfer.fleet.ssh_keys import known_hosts, pin

_CONNECT_SECONDS: Final = 10.0
_KEEPALIVE: Final = 15.0


async def open_connection(
    name: str,
    alias: str,
    address: Address,
    private: Path,
    records: Path,
    say: Callable[[str], None],
) -> asyncssh.SSHClientConnection:
    """Log in. A machine without a pinned key is pinned on this first use, which is said.

    Raises HostBrokenError if nobody lets us in, VerificationError if the host key is another one.
    """
    where = f"{name} ({address.host}:{address.port})"
    try:
        if not known_hosts(records, alias).exists():
            await _pin_first(alias, address, records)
            say(f"{where}: host key taken on first use")
        return await asyncssh.connect(
            address.host,
            address.port,
            username=address.user,
            client_keys=[str(private)],
            known_hosts=str(known_hosts(records, alias)),
            host_key_alias=alias,
            agent_path=None,
            config=None,
            connect_timeout=_CONNECT_SECONDS,
            login_timeout=_CONNECT_SECONDS,
            keepalive_interval=_KEEPALIVE,
        )
    except asyncssh.HostKeyNotVerifiable:
        raise VerificationError(
            f"{where}: its host key is not the pinned one; somebody may stand between. If the "
            f"machine was made anew, remove {known_hosts(records, alias)}"
        ) from None
    except (OSError, asyncssh.Error, asyncssh.KeyImportError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise HostBrokenError(f"{where}: ssh: {text}", category=NO_SSH.category) from None


async def _pin_first(alias: str, address: Address, records: Path) -> None:
    key = await asyncio.wait_for(
        asyncssh.get_server_host_key(address.host, address.port, config=None), _CONNECT_SECONDS
    )
    if key is None:
        raise OSError("the host shows no key")
    pin(records, alias, [key.export_public_key().decode()])


class SshBox:
    """A shell over one connection."""

    def __init__(
        self,
        name: str,
        alias: str,
        address: Address,
        private: Path,
        records: Path,
        say: Callable[[str], None],
    ) -> None:
        self._name = name
        self._runner = asyncio.Runner()
        try:
            opening = open_connection(name, alias, address, private, records, say)
            self._connection = self._await(opening)
        except BaseException:
            self._runner.close()
            raise

    def _await(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def run(self, command: str, *, stdin: str | bytes = "", timeout: float = 60.0) -> Ran:
        """Run a shell command; see Box.run."""

        async def work() -> Ran:
            # With an empty `input` the far side would wait for the end of its input for ever.
            given = {"input": as_bytes(stdin)} if stdin else {"stdin": asyncssh.DEVNULL}
            done = await self._connection.run(
                command, timeout=timeout, check=False, encoding=None, **given
            )
            status = -1 if done.returncode is None else done.returncode
            return Ran(status, as_text(done.stdout), as_text(done.stderr))

        try:
            result: Ran = self._await(work())
        except asyncssh.TimeoutError as error:
            return Ran(-1, as_text(error.stdout), as_text(error.stderr))
        except (OSError, asyncssh.Error) as error:
            raise HostBrokenError(
                f"{self._name}: the link broke: {error}", category=NO_SSH.category
            ) from None
        return result

    def close(self) -> None:
        """End the link."""

        async def work() -> None:
            self._connection.close()
            await self._connection.wait_closed()

        self._await(work())
        self._runner.close()


def opener(
    private: Path, records: Path, say: Callable[[str], None]
) -> Callable[[str, str, Address], SshBox]:
    """What logs in with one key: a name for messages, the alias of the host key, the address."""

    def connect(name: str, alias: str, address: Address) -> SshBox:
        return SshBox(name, alias, address, private, records, say)

    return connect
