"""Machines of one's own: the same verbs by SSH and on this machine, and nothing billed."""

import json
import os
from pathlib import Path

import pytest

from ninfer.errors import ProviderError, UsageError
from ninfer.fleet.box import Ran
from ninfer.fleet.own import LocalBox, OwnMachine, own_address
from ninfer.fleet.provider import Address
from tests.fleet.ssh_server import SshServer
from tests.fleet.test_fleet_cli import Call, box, call

__all__ = ["box", "call"]


@pytest.fixture(params=["local", "ssh"])
def where(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    box: SshServer,
    monkeypatch: pytest.MonkeyPatch,
) -> list[str]:
    """The options that name the machine; its home folder is `home`."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    if request.param == "local":
        return ["--provider", "local"]
    return ["--provider", "ssh", "--host", f"somebody@127.0.0.1:{box.port}"]


def line(call: Call) -> dict[str, object]:
    status, out, err = call("status", "--json")
    assert status == 0, err
    (found,) = json.loads(out)["lines"]
    return found


def test_all_verbs(where: list[str], call: Call, tmp_path: Path) -> None:
    """Scenario 14, without a server: both kinds pass the same steps."""
    status, out, err = call("create", "--bare", "--name", "own", *where)
    assert status == 0 and "is taken in" in out, err
    shown = line(call)
    assert shown["state"] == "running" and shown["rate"] == 0 and shown["minutes"] is None
    (mark,) = (tmp_path / "home" / ".ninfer" / "machines").iterdir()
    assert ".own." in mark.name

    status, _, err = call("create", "--bare", "--name", "again", *where)
    assert status == 5 and "lies there already" in err

    (mark / "stop").write_text(f"echo stopped > {tmp_path}/proof\n")
    assert call("down")[0] == 0 and line(call)["state"] == "stopped"
    assert (tmp_path / "proof").read_text() == "stopped\n"
    assert call("up")[0] == 0 and line(call)["state"] == "running"
    assert call("reap")[1] == "nothing to end\n"

    status, out, _ = call("destroy")
    assert status == 0 and "spent $0.00" in out
    assert not (tmp_path / "home" / ".ninfer" / "machines").exists()


def test_machine_that_cannot_be_asked_is_not_forgotten(
    box: SshServer, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    host = f"somebody@127.0.0.1:{box.port}"
    assert call("create", "--bare", "--provider", "ssh", "--host", host)[0] == 0
    box.stop()
    status, out, err = call("status")
    assert status == 10 and "unknown" in out and "ssh:" in err
    assert call("destroy")[0] == 12
    host_port = box.port
    box.start()
    assert box.port != host_port  # another port is another machine: the row keeps the old one
    assert call("status")[0] == 10


def test_own_machine_needs_no_account(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project" / ".env").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert call("create", "--bare", "--provider", "local")[0] == 0
    assert call("status")[0] == 0 and call("reap")[0] == 0
    status, _, err = call("ssh")
    assert status == 2 and "it is this machine" in err
    status, _, err = call("tunnel")
    assert status == 2 and "on this machine" in err
    assert call("destroy")[0] == 0


@pytest.mark.parametrize(
    "answer",
    [Ran(0, "", ""), Ran(0, "half a li", ""), Ran(1, "end\n", "x"), Ran(-1, "end\n", "")],
)
def test_list_that_is_not_whole_is_no_list(answer: Ran) -> None:
    class Box(LocalBox):
        def run(self, command: str, *, stdin: str | bytes = "", timeout: float = 60.0) -> Ran:
            return answer

    with pytest.raises(ProviderError):
        OwnMachine("ssh:x", own_address("x"), Box).machines()


def test_addresses() -> None:
    assert own_address("a.b") == Address("a.b", 22, "root")
    assert own_address("me@10.0.0.1:2222") == Address("10.0.0.1", 2222, "me")
    assert own_address("[::1]:23") == Address("::1", 23, "root")
    for bad in ("", "a b", "a:0", "a:99999", "-oProxyCommand=x", "a@b@c", "x;y", "me@-x"):
        with pytest.raises(UsageError, match="--host"):
            own_address(bad)


def test_driver_of_this_machine_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA GeForce RTX 5090, 32607'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    from tests.fleet.scene import need

    (found,) = OwnMachine("local", None, LocalBox).offers(need())
    assert found.gpu == "NVIDIA GeForce RTX 5090" and found.gpu_ram == 32607 and found.gpus == 1
    assert found.disk and found.price == 0
