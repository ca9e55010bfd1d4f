"""`build`, `kit-pack`, `log-build` and `kit-url`; which kit a machine gets; the private store."""

import hashlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ninfer.cli import main
from ninfer.cli.fleet import opening
from ninfer.errors import (
    HostBrokenError,
    ProviderError,
    RefusedError,
    UsageError,
    VerificationError,
)
from ninfer.fleet import packing
from ninfer.fleet.box import Ran
from ninfer.fleet.building import BuiltKit, built_kit, start_build, wait_build
from ninfer.fleet.config import load_settings
from ninfer.fleet.kit_choice import KitChoice, choose_kit
from ninfer.fleet.own import LocalBox
from ninfer.fleet.packing import bring_home
from ninfer.fleet.private_store import Credentials, grant, read_credentials
from ninfer.fleet.source import source_of
from tests.fleet.ssh_server import SshServer
from tests.fleet.test_fleet_cli import Call, box, call
from tests.kits.kit_files import write_kit

__all__ = ["box", "call"]

# What `python -m ninfer kit build` does in the repository of these tests.
BUILDS = """
import shutil, sys
assert sys.argv[1:4] == ["kit", "build", "--architecture"], sys.argv
folder = sys.argv[sys.argv.index("--output") + 1]
print("compiling for", sys.argv[4])
shutil.copytree("made", folder)
"""
FAILS = "import sys; print('no room on the disk'); sys.exit(3)"
WAITS = "import time; print('compiling', flush=True); time.sleep(600)"


class Quick:
    """Real time whose pauses are short."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.05))


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Branch `main` builds a kit, `broken` fails, `slow` never ends."""
    folder = tmp_path / "repository"
    (folder / "ninfer").mkdir(parents=True)
    (folder / "ninfer" / "__init__.py").write_text("")
    (folder / "made").mkdir()
    write_kit(tmp_path / "ninfer-x-sm90.kit.tar.gz").rename(
        folder / "made" / "ninfer-x-sm90.kit.tar.gz"
    )
    (folder / "made" / "ninfer-x-sm90.BUILDINFO.txt").write_text("seconds 1\n")
    git(folder, "init", "-q", "-b", "main")
    for branch, text in (("main", BUILDS), ("broken", FAILS), ("slow", WAITS)):
        if branch != "main":
            git(folder, "checkout", "-q", "-b", branch)
        (folder / "ninfer" / "__main__.py").write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", branch)
    git(folder, "checkout", "-q", "main")
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home folder of the machine; a build that is left there is ended."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("NINFER_PYTHON", raising=False)
    yield folder
    pid, end = folder / ".ninfer" / "build.pid", folder / ".ninfer" / "build.end"
    if pid.exists() and not end.exists():
        try:
            os.killpg(int(pid.read_text()), signal.SIGKILL)
        except ProcessLookupError:
            return


@pytest.fixture
def machine(
    call: Call, box: SshServer, home: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    """A machine behind SSH in the records."""
    monkeypatch.setattr(opening, "clock", Quick)
    monkeypatch.setenv("NINFER_SRC_URL", f"file://{repository}")
    host = f"somebody@127.0.0.1:{box.port}"
    assert call("create", "--bare", "--provider", "ssh", "--host", host)[0] == 0
    return call


def test_built_on_the_machine_and_brought_home(
    machine: Call, repository: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "PIECE", 700)
    status, _, err = machine("kit-pack")
    assert status == 8 and "'ninfer build' makes one" in err
    status, out, err = machine("build", "--architecture", "90")
    assert status == 0 and "building for sm_90 from main" in err, err
    kit = repository / "made" / "ninfer-x-sm90.kit.tar.gz"
    digest = hashlib.sha256(kit.read_bytes()).hexdigest()
    assert f"sha256:{digest}" in out
    assert "compiling for 90" in (home / ".ninfer" / "build.log").read_text()
    status, out, err = machine("kit-pack", "-o", str(tmp_path / "dist"))
    assert status == 0, err
    assert f"NINFER_KIT_SHA256={digest}" in out
    (there,) = (tmp_path / "dist").iterdir()
    assert there.name == kit.name and there.read_bytes() == kit.read_bytes()


def test_a_build_that_fails_says_its_last_word(
    machine: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NINFER_SRC_BRANCH", "broken")
    status, _, err = machine("build", "--architecture", "90")
    assert status == 8 and "status 3" in err and "log-build" in err, err
    assert machine("kit-pack")[0] == 8
    monkeypatch.setenv("NINFER_SRC_BRANCH", "nowhere")
    status, _, err = machine("build", "--architecture", "90")
    assert status == 8 and "status 1" in err


def test_one_build_at_a_time_a_limit_and_a_killed_one(
    machine: Call, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NINFER_SRC_BRANCH", "slow")
    assert machine("build", "--architecture", "90", "--no-wait")[0] == 0
    status, _, err = machine("build", "--architecture", "90")
    assert status == 11 and "log-build" in err
    active = home / ".ninfer" / "active"
    active.touch()
    os.utime(active, (1, 1))
    with pytest.raises(Exception, match="still runs after 0 minutes"):
        wait_build(LocalBox(), "box", Quick(), 0.0)
    assert active.stat().st_mtime > 1, "who builds is not idle"
    os.killpg(int((home / ".ninfer" / "build.pid").read_text()), signal.SIGKILL)
    with pytest.raises(HostBrokenError, match="was killed"):
        while True:  # until the system has reaped it
            try:
                wait_build(LocalBox(), "box", Quick(), 0.0)
            except Exception as error:
                if "still runs" not in str(error):
                    raise
    monkeypatch.setenv("NINFER_SRC_BRANCH", "main")
    assert machine("build", "--architecture", "90")[0] == 0, "and the next one may start"


def test_the_checkout_is_sent_where_no_address_is_given(repository: Path, home: Path) -> None:
    """One commit, the asked one, and nothing that was not committed."""
    (repository / "ninfer" / "__main__.py").write_text(FAILS)
    wanted = git(repository, "rev-parse", "main")
    source = source_of("", "main", repository / "ninfer")
    assert source.revision == wanted
    start_build(LocalBox(), "own", 90, source)
    kit = wait_build(LocalBox(), "own", Quick(), 600)
    assert kit == built_kit(LocalBox(), "own") and kit.path.endswith("sm90.kit.tar.gz")
    there = home / ".ninfer" / "src"
    assert git(there, "rev-parse", "HEAD") == wanted
    assert git(there, "rev-list", "--count", "HEAD") == "1"


@pytest.mark.parametrize(
    ("url", "ref", "said"),
    [
        ("https://me:word@example.com/x", "main", "without a password"),
        ("/somewhere", "main", "must be a git address"),
        ("", "-x", "NINFER_SRC_BRANCH=-x"),
        ("", "a b", "NINFER_SRC_BRANCH=a b"),
        ("", "", "NINFER_SRC_BRANCH="),
        ("", "nowhere", "no such commit"),
    ],
)
def test_sources_that_are_none(repository: Path, url: str, ref: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        source_of(url, ref, repository)
    assert "word@" not in str(raised.value)


def test_what_is_in_no_checkout_needs_an_address(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="NINFER_SRC_URL"):
        source_of("", "main", tmp_path)


class Cut(LocalBox):
    """Breaks off after some commands."""

    def __init__(self, left: int) -> None:
        self.left, self.asked = left, 0

    def run(self, command: str, *, stdin: str | bytes = "", timeout: float = 60.0) -> Ran:
        if self.left == 0:
            raise HostBrokenError("the link broke", category="")
        self.left -= 1
        self.asked += 1
        return super().run(command, stdin=stdin, timeout=timeout)


def test_an_interrupted_download_goes_on(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "PIECE", 1000)
    data = bytes(range(256)) * 20
    (home / "k.kit.tar.gz").write_bytes(data)
    kit = BuiltKit("k.kit.tar.gz", hashlib.sha256(data).hexdigest(), len(data))
    first, told = Cut(2), []
    with pytest.raises(HostBrokenError):
        bring_home(first, "box", kit, tmp_path / "d", lambda *_: None)
    (part,) = (tmp_path / "d").iterdir()
    assert part.suffix == ".part" and part.stat().st_size == 2000
    part.write_bytes(part.read_bytes() + b"half a piece")
    second = Cut(99)
    path = bring_home(second, "box", kit, tmp_path / "d", lambda done, _: told.append(done))
    assert path.read_bytes() == data and second.asked == 4 and told[-1] == len(data)
    assert [one.name for one in (tmp_path / "d").iterdir()] == ["k.kit.tar.gz"]


def test_other_bytes_than_on_the_machine_are_no_kit(home: Path, tmp_path: Path) -> None:
    """Scenario 9, M16: one byte less, one byte wrong; nothing keeps the name of a kit."""
    (home / "k").write_bytes(b"x" * 99)
    with pytest.raises(VerificationError, match="another SHA-256"):
        bring_home(LocalBox(), "box", BuiltKit("k", "0" * 64, 99), tmp_path, lambda *_: None)
    with pytest.raises(HostBrokenError, match="99 of 100 bytes"):
        bring_home(LocalBox(), "box", BuiltKit("k", "1" * 64, 100), tmp_path, lambda *_: None)
    assert not (tmp_path / "k").exists()


HEX = "ab" * 32
STORE = "https://store.example/kit"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"NINFER_KIT_SHA256": HEX}, KitChoice(STORE, HEX)),
        ({"NINFER_KIT_SHA256": HEX.upper()}, KitChoice(STORE, HEX)),
        ({"NINFER_KIT_SHA256": ""}, KitChoice(builds=True)),
        ({"NINFER_KIT_SHA256": " ", "NINFER_KIT_URL": "https://x"}, KitChoice(builds=True)),
        ({"NINFER_KIT_SHA256": HEX, "NINFER_KIT_URL": "https://x"}, KitChoice("https://x", HEX)),
        ({"NINFER_KIT_SHA256": "abc"}, "64 hexadecimal digits"),
        ({"NINFER_KIT_URL": "https://x"}, "NINFER_KIT_SHA256 is not set for https://x"),
        ({}, "NINFER_KIT_SHA256 is not set"),
        ({"NINFER_KIT_SHA1": "0a75", "NINFER_KIT_SHA256": HEX}, "set NINFER_KIT_SHA256 instead"),
        ({"NINFER_KIT_SHA256": HEX, "NINFER_KIT_KEY": "a/k"}, "NINFER_B2_ENV must name"),
    ],
)
def test_which_kit(given: dict[str, str], wanted: KitChoice | str, tmp_path: Path) -> None:
    settings = load_settings(given, tmp_path, tmp_path)
    if isinstance(wanted, str):
        with pytest.raises(UsageError, match=wanted):
            choose_kit(settings, lambda: STORE)
    else:
        assert choose_kit(settings, lambda: STORE) == wanted


class Bucket(BaseHTTPRequestHandler):
    """The store's three calls, as its pages describe them."""

    answers: dict[str, tuple[int, Any]]
    seen: list[tuple[str, dict[str, Any], str]]

    def _answer(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(size)) if size else {}
        name = self.path.removeprefix("/b2api/v3/")
        type(self).seen.append((name, body, self.headers["authorization"]))
        status, answer = type(self).answers[name]
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _answer

    def log_message(self, *_: object) -> None:
        pass


Buckets = Callable[..., tuple[Credentials, type[Bucket]]]


@pytest.fixture
def bucket() -> Iterator[tuple[Credentials, type[Bucket]]]:
    kind = type("One", (Bucket,), {"seen": [], "answers": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    root = f"http://127.0.0.1:{server.server_port}"
    storage = {"apiUrl": root, "downloadUrl": "https://f.example"}
    storage |= {"bucketId": "b1", "bucketName": "kits"}
    kind.answers |= {
        "b2_authorize_account": (
            200,
            {
                "accountId": "a1",
                "authorizationToken": "account-token",
                "apiInfo": {"storageApi": storage},
            },
        ),
        "b2_list_buckets": (200, {"buckets": [{"bucketId": "b2", "bucketName": "other"}]}),
        "b2_get_download_authorization": (200, {"authorizationToken": "read-token"}),
    }
    yield Credentials("id", "b2-secret", "kits", root), kind
    server.shutdown()
    server.server_close()
    thread.join()


def test_private_store_grants_one_name(bucket: tuple[Credentials, type[Bucket]]) -> None:
    credentials, kind = bucket
    url, token = grant(credentials, "ninfer/a kit.tar.gz")
    assert url == "https://f.example/file/kits/ninfer/a%20kit.tar.gz" and token == "read-token"
    (first, second) = kind.seen
    assert first[2].startswith("Basic ") and second[2] == "account-token"
    assert second[1] == {
        "bucketId": "b1",
        "fileNamePrefix": "ninfer/a kit.tar.gz",
        "validDurationInSeconds": 7200,
    }
    other = Credentials("id", "b2-secret", "other", credentials.api)
    assert grant(other, "k")[0] == "https://f.example/file/other/k"
    assert kind.seen[3][1] == {"accountId": "a1", "bucketName": "other"}
    assert "b2-secret" not in repr(credentials)


@pytest.mark.parametrize(
    ("call", "answer", "error"),
    [
        ("b2_authorize_account", (401, {"message": "no such key"}), RefusedError),
        ("b2_authorize_account", (503, {"message": "busy"}), ProviderError),
        ("b2_authorize_account", (200, {"accountId": "a1"}), ProviderError),
        ("b2_authorize_account", (200, []), ProviderError),
        ("b2_get_download_authorization", (401, {"message": "no shareFiles"}), RefusedError),
        ("b2_get_download_authorization", (200, {}), ProviderError),
        ("b2_list_buckets", (200, {"buckets": []}), RefusedError),
    ],
)
def test_private_store_that_says_no_or_something_else(
    bucket: tuple[Credentials, type[Bucket]],
    call: str,
    answer: tuple[int, Any],
    error: type[Exception],
) -> None:
    credentials, kind = bucket
    kind.answers[call] = answer
    name = "other" if call == "b2_list_buckets" else "kits"
    with pytest.raises(error) as raised:
        grant(Credentials("id", "b2-secret", name, credentials.api), "k")
    assert "b2-secret" not in str(raised.value) and "token" not in str(raised.value)


def test_kit_url_shows_addresses_and_no_token(
    bucket: tuple[Credentials, type[Bucket]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    credentials, _ = bucket
    monkeypatch.setenv("NINFER_PROJ", str(tmp_path))
    monkeypatch.setenv("NINFER_KIT_STORE", "https://store.example")
    assert main(["kit-url", "rtx3090"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("https://store.example/ninfer-") and "sm86" in shown
    monkeypatch.setenv("NINFER_KIT_URL", "https://mine.example/k")
    assert main(["kit-url"]) == 0 and capsys.readouterr().out == "https://mine.example/k\n"
    secrets = tmp_path / "b2"
    secrets.write_text(
        f"export B2_KEY_ID=id\nB2_APPLICATION_KEY='b2-secret'\nB2_BUCKET_NAME=kits\n"
        f"B2_API_URL={credentials.api}\nX=$(touch {tmp_path}/pwned)\n"
    )
    secrets.chmod(0o600)
    (tmp_path / ".env").write_text(f"NINFER_KIT_KEY=n/k\nNINFER_B2_ENV={secrets}\n")
    assert main(["kit-url"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "https://f.example/file/kits/n/k\n"
    assert "token" not in captured.out + captured.err and not (tmp_path / "pwned").exists()
    monkeypatch.setenv("NINFER_KIT_SHA256", "")
    assert main(["kit-url"]) == 0 and "built on the machine from main" in capsys.readouterr().out
    secrets.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        read_credentials(secrets)
    secrets.chmod(0o600)
    secrets.write_text("B2_KEY_ID=id\n")
    with pytest.raises(UsageError, match="lacks B2_APPLICATION_KEY, B2_BUCKET_NAME"):
        read_credentials(secrets)
    with pytest.raises(UsageError, match="NINFER_B2_ENV"):
        read_credentials(tmp_path / "missing")
