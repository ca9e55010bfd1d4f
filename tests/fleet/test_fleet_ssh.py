"""SSH to a real server on loopback: pinned keys, commands, a tunnel that outlives its link."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import asyncssh
import httpx
import pytest

from ninfer.errors import HostBrokenError, ProviderError, UsageError, VerificationError
from ninfer.fleet.asyncssh_box import SshBox, open_connection
from ninfer.fleet.contract import Contract, Stage, make_label
from ninfer.fleet.provider import Address
from ninfer.fleet.ssh_keys import known_hosts, pin, public_key, ssh_command
from ninfer.fleet.tunnel import Link, Tunnel
from tests.fleet.ssh_server import SshServer, write_key

ROW = Contract(
    *(1, "box", "vast", make_label("0" * 8, "box", "1" * 12), Stage.RENTED, "7001", "", "", "", ""),
    *("", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "", 0),
)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return write_key(tmp_path)


@pytest.fixture
def server(tmp_path: Path, key: Path) -> Iterator[SshServer]:
    (tmp_path / "box").mkdir()
    made = SshServer(tmp_path / "box", public_key(key))
    yield made
    made.close()


def box_of(server: SshServer, key: Path, tmp_path: Path, said: list[str] | None = None) -> SshBox:
    say = [].append if said is None else said.append
    return SshBox("box", ROW.label, Address("127.0.0.1", server.port), key, tmp_path, say)


def test_commands_with_status_input_and_both_streams(
    server: SshServer, key: Path, tmp_path: Path
) -> None:
    box = box_of(server, key, tmp_path)
    ran = box.run("cat; echo no >&2; exit 7", stdin="a secret")
    assert (ran.status, ran.out, ran.err) == (7, "a secret", "no\n")
    assert "a secret" not in "".join(server.commands)
    assert box.run("cat", timeout=60).status == 0, "without input it ends at once"
    assert box.run("sleep 1", timeout=0.2).status == -1
    box.close()


def test_first_use_is_said_and_pins(server: SshServer, key: Path, tmp_path: Path) -> None:
    said: list[str] = []
    box_of(server, key, tmp_path, said).close()
    assert "first use" in said[0]
    box_of(server, key, tmp_path, said).close()
    assert len(said) == 1


def test_pinned_key_holds_at_another_port_and_a_changed_one_is_refused(
    server: SshServer, key: Path, tmp_path: Path
) -> None:
    """Scenarios 10 and 11, M11: addresses change, keys do not."""
    pin(tmp_path, ROW.label, [server.host_key.export_public_key().decode()])
    said: list[str] = []
    box_of(server, key, tmp_path, said).close()
    server.stop()
    server.start()
    box_of(server, key, tmp_path, said).close()
    assert said == []
    server.stop()
    server.host_key = asyncssh.generate_private_key("ssh-ed25519")
    server.start()
    with pytest.raises(VerificationError, match="not the pinned one"):
        box_of(server, key, tmp_path)
    with pytest.raises(VerificationError, match="changed"):
        pin(tmp_path, ROW.label, [server.host_key.export_public_key().decode()])


def test_nobody_there_and_wrong_key_are_broken_hosts(
    server: SshServer, key: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(HostBrokenError, match=r"ssh: .*[Pp]ermission"):
        box_of(server, write_key(other), tmp_path)
    with pytest.raises(HostBrokenError, match="ssh:"):
        box_of(server, tmp_path / "missing", tmp_path)
    server.stop()
    with pytest.raises(HostBrokenError, match=r"box .127\.0\.0\.1:"):
        box_of(server, key, tmp_path)


def test_broken_link_is_a_broken_host(server: SshServer, key: Path, tmp_path: Path) -> None:
    box = box_of(server, key, tmp_path)
    server.stop()
    with pytest.raises(HostBrokenError, match="link broke"):
        box.run("true")
    box.close()


@pytest.mark.parametrize(
    "text",
    ["", "~/.ssh/id_ed25519.pub", "-----BEGIN OPENSSH PRIVATE KEY-----", "ssh-ed25519 short"],
)
def test_what_is_no_public_key_is_refused(tmp_path: Path, text: str) -> None:
    """M8: a path or a private key in place of the key."""
    (tmp_path / "id.pub").write_text(text)
    with pytest.raises(UsageError, match=r"id\.pub"):
        public_key(tmp_path / "id")
    with pytest.raises(UsageError, match="ssh-keygen -y"):
        public_key(tmp_path / "absent")


def test_public_key_with_a_comment_of_several_words(key: Path) -> None:
    assert public_key(key).endswith(" someone at home")


def test_command_of_the_system_pins_and_names_no_secret(tmp_path: Path) -> None:
    address = Address("192.0.2.1", 4022)
    fresh = ssh_command(Path("/k"), tmp_path, ROW, address)
    assert "StrictHostKeyChecking=accept-new" in fresh
    pin(tmp_path, ROW.label, ["ssh-ed25519 " + "B" * 68])
    line = ssh_command(Path("/k"), tmp_path, ROW, address)
    assert "StrictHostKeyChecking=yes" in line and f"HostKeyAlias={ROW.label}" in line
    assert f"UserKnownHostsFile={known_hosts(tmp_path, ROW.label)}" in line
    assert line[-1] == "root@192.0.2.1" and line[-2] == "4022"


class Model(BaseHTTPRequestHandler):
    """A server on the machine that answers with its path."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        data = self.path.encode() * 1000
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def remote_port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def test_tunnel_outlives_links_and_addresses(
    server: SshServer, key: Path, tmp_path: Path, remote_port: int
) -> None:
    """Scenario 11: the client's address stays, and requests resume by themselves."""
    looked: list[int] = []
    failures = [ProviderError("the vendor does not answer"), HostBrokenError("no", category="")]

    async def opening() -> Link:
        looked.append(server.port)
        if len(looked) > 1 and failures:
            raise failures.pop()
        return await open_connection(
            "box", ROW.label, Address("127.0.0.1", server.port), key, tmp_path, print
        )

    async def scene() -> None:
        port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        said: list[str] = []
        tunnel = Tunnel(opening, 0, said.append, remote_port)
        task = asyncio.create_task(tunnel.run(port.set_result))
        base = f"http://127.0.0.1:{await port}"
        async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
            for path in ("/a", "/b"):
                assert (await client.get(base + path)).text == path * 1000
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)  # another port
        async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
            answers = await asyncio.gather(*(client.get(f"{base}/{n}") for n in range(8)))
        assert [answer.text for answer in answers] == [f"/{n}" * 1000 for n in range(8)]
        assert "the link broke" in said and not failures
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())
    assert len(set(looked)) == 2


def test_tunnel_ends_when_the_host_is_another(server: SshServer, key: Path, tmp_path: Path) -> None:
    pin(tmp_path, ROW.label, ["ssh-ed25519 " + "B" * 68])

    async def opening() -> Link:
        return await open_connection(
            "box", ROW.label, Address("127.0.0.1", server.port), key, tmp_path, print
        )

    with pytest.raises(VerificationError):
        asyncio.run(Tunnel(opening, 0, lambda text: None).run())


def test_taken_port_is_named(tmp_path: Path) -> None:
    async def never() -> Link:
        raise AssertionError

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"--port {port}"):
            asyncio.run(Tunnel(never, port, lambda text: None).run())
