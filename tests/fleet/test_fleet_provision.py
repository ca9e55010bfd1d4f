"""Stages on a machine: evidence, resumption, refusals, one server, and what the records keep."""

import json
import os
import shutil
import signal
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ninfer.errors import HostBrokenError, UsageError, VerificationError
from ninfer.fleet.checking import Facts, judge, room_for
from ninfer.fleet.config import load_settings
from ninfer.fleet.contract import Contract
from ninfer.fleet.fleet import Fleet
from ninfer.fleet.plans import Source
from ninfer.fleet.provision_options import ProvisionOptions, plan_of
from ninfer.fleet.provisioning import provision, records, resume
from ninfer.fleet.stages import Link, Stage, complete
from ninfer.fleet.uploads import put_file
from tests.fleet.conftest import Scene
from tests.fleet.scene import make
from tests.fleet.standin import (
    KEY,
    PacedClock,
    ShellBox,
    end_server,
    free_port,
    make_kit,
    make_plan,
)
from tests.fleet.vendor import VirtualClock


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "home"
    made.mkdir()
    yield made
    end_server(made)


@pytest.fixture
def machine(scene: Scene, home: Path) -> tuple[Fleet, Contract]:
    """A rented machine that is bare."""
    row = make(scene.fleet)
    fleet = replace(
        scene.fleet, clock=PacedClock(scene.vendor.clock), connect=lambda row, shot: ShellBox(home)
    )
    return fleet, row


@pytest.fixture
def link(home: Path) -> Link:
    said: list[str] = []
    return Link(lambda: ShellBox(home), ".ninfer", PacedClock(VirtualClock()), said.append)


def servers(home: Path) -> int:
    """Processes that serve from that home."""
    found = 0
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes().split(b"\0")
            inside = os.readlink(process.parent / "cwd").startswith(str(home))
        except OSError:
            continue
        found += inside and b"serve" in words and words[0].endswith(b"python3")
    return found


def test_serves_and_a_rerun_finds_everything_there(
    machine: tuple[Fleet, Contract], home: Path, tmp_path: Path
) -> None:
    fleet, row = machine
    plan = make_plan(make_kit(tmp_path), free_port())
    first = provision(fleet, row, plan)
    assert first.models == ["tiny"] and first.context == 512 and first.output_tokens == 1
    assert first.resident_mib > 1 and first.round_trip > 0
    assert list(first.seconds) == ["check", "system", "kit", "python", "serve", "health", "token"]
    assert {"system", "kit", "python", "serve"} <= set(first.done)
    folder = home / ".ninfer"
    for name in ("key", "serve.argv", "stop", "start"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert (folder / "active").exists()
    pid = (folder / "serve.pid").read_text()
    second = provision(fleet, row, plan)
    assert second.done == ["health", "token"] and (folder / "serve.pid").read_text() == pid
    third = provision(fleet, row, replace(plan, options=("--mark", "1")))
    assert third.done == ["serve", "health", "token"], "another command line is a new server"
    assert (folder / "serve.pid").read_text() != pid and servers(home) == 1
    assert [record["done"] for record in records(fleet, row)] == [
        first.done,
        second.done,
        third.done,
    ]
    texts = " ".join(text for _, text in fleet.store.events(row))
    assert "provision: kit: " in texts and KEY not in texts


def test_another_kit_is_switched_to_and_a_damaged_one_is_not(
    machine: tuple[Fleet, Contract], home: Path, tmp_path: Path
) -> None:
    fleet, row = machine
    port = free_port()
    first, second = make_kit(tmp_path), make_kit(tmp_path, mark="-b")
    provision(fleet, row, make_plan(first, port))
    assert "kit" in provision(fleet, row, make_plan(second, port)).done
    kits = home / ".ninfer" / "kits"
    assert (kits.parent / "kit").resolve() == kits / second.id
    shutil.rmtree(kits / second.id)
    again = provision(fleet, row, make_plan(second, port))
    assert "kit" in again.done, "evidence without its effect does not hold"
    wrong = make_kit(tmp_path, mark="-c")
    with pytest.raises(VerificationError, match="SHA-256"):
        provision(fleet, row, make_plan(replace(wrong, sha256="0" * 64), port))
    other = make_kit(tmp_path, mark="-d", architecture=90)
    with pytest.raises(HostBrokenError, match="shows no card"):
        provision(fleet, row, make_plan(other, port, architecture=86))
    assert (kits.parent / "kit").resolve() == kits / second.id and servers(home) == 1


def test_kit_from_an_address_goes_on_after_a_cut(
    machine: tuple[Fleet, Contract], home: Path, tmp_path: Path, serving: Callable[[Path], str]
) -> None:
    """M16: a part of an earlier download is used, and one that is wrong is not."""
    fleet, row = machine
    kit = make_kit(tmp_path, ballast=300_000)
    assert kit.file is not None
    source = Source(None, serving(kit.file), kit.sha256)
    folder = home / ".ninfer"
    folder.mkdir(exist_ok=True)
    data = kit.file.read_bytes()
    (folder / f"kit.download.{kit.id}").write_bytes(data[: len(data) // 2])
    plan = make_plan(source, free_port())
    assert "kit" in provision(fleet, row, plan).done
    log = (folder / "stages" / "kit.log").read_text()
    assert "Resuming transfer from byte position" in log or "416" not in log
    bad = replace(source, sha256="1" * 64)
    with pytest.raises(VerificationError, match="not 1111"):
        provision(fleet, row, replace(plan, kit=bad))
    assert servers(home) == 1, "what runs is not touched by a kit that does not match"


def test_upload_goes_on_where_it_was_and_a_changed_byte_is_sent_again(
    link: Link, home: Path, tmp_path: Path
) -> None:
    kit = make_kit(tmp_path, ballast=9_000_000)
    assert kit.file is not None
    data = kit.file.read_bytes()
    part = home / ".ninfer" / f"kit.{kit.sha256[:16]}.part"
    part.parent.mkdir()
    part.write_bytes(data[:5_000_001])
    assert put_file(link, kit.file, "kit", kit.sha256) == len(data) - 5_000_001
    assert put_file(link, kit.file, "kit", kit.sha256) == 0
    (home / ".ninfer" / "kit").unlink()
    part.write_bytes(b"x" + data[1:1000])
    assert put_file(link, kit.file, "kit", kit.sha256) > len(data), "sent twice"
    assert (home / ".ninfer" / "kit").read_bytes() == data
    with pytest.raises(VerificationError, match="twice"):
        put_file(link, kit.file, "kit2", "2" * 64)
    assert not list(part.parent.glob("*.part"))


def test_stage_goes_on_without_us_and_is_found_again(link: Link, home: Path) -> None:
    """Its script runs once, though the process that started it is gone before it ends."""
    folder = home / ".ninfer"
    stage = Stage("slow", "echo at work; echo x >> runs; while [ ! -e go ]; do sleep 0.05; done\n")

    class Gone(Exception):
        pass

    def leave(text: str) -> None:
        raise Gone

    with pytest.raises(Gone):
        complete(Link(lambda: ShellBox(home), ".ninfer", PacedClock(VirtualClock()), leave), stage)
    (folder / "go").touch()
    assert complete(link, stage) is False, "another call's evidence counts"
    assert (folder / "runs").read_text() == "x\n"


def test_stage_that_fails_says_why_and_whose_fault_it_is(link: Link) -> None:
    with pytest.raises(HostBrokenError, match="own: the disk is gone") as broken:
        complete(link, Stage("own", "echo the disk is gone; exit 6\n"))
    assert broken.value.category == "own"
    with pytest.raises(VerificationError, match="bad: other bytes"):
        complete(link, Stage("bad", "echo other bytes; exit 8\n"))
    with pytest.raises(VerificationError, match="left nothing"):
        complete(link, Stage("idle", "true\n", "[ -e nothing ]"))
    # The next call tries anew, in spite of the failure on record.
    fixed = Stage("bad", "echo other bytes; exit 8\n")
    with pytest.raises(VerificationError):
        complete(link, fixed)
    assert complete(link, Stage("bad", "true\n")) is True


def test_stage_that_the_machine_lost_is_started_again(link: Link, home: Path) -> None:
    """kill -9 of the stage itself, as a restart of its machine would."""
    script = "[ -e stages/once ] && exit 0; : > stages/once; kill -9 $PPID; kill -9 $$\n"
    assert complete(link, Stage("lost", script)) is True
    with pytest.raises(HostBrokenError, match="lost it three times"):
        complete(link, Stage("always", "kill -9 $PPID; kill -9 $$\n"))


def test_server_that_died_is_started_again_and_one_that_cannot_start_is_told(
    machine: tuple[Fleet, Contract], home: Path, tmp_path: Path
) -> None:
    fleet, row = machine
    plan = make_plan(make_kit(tmp_path), free_port())
    provision(fleet, row, plan)
    folder = home / ".ninfer"
    supervisor = int((folder / "serve.pid").read_text())
    # The supervisor alone: its server holds the lock, and `start` takes it over.
    os.kill(supervisor, signal.SIGKILL)
    assert resume(fleet, row, KEY) and servers(home) == 1
    assert int((folder / "serve.pid").read_text()) != supervisor
    with pytest.raises(VerificationError, match="no such layer"):
        provision(fleet, row, replace(plan, options=("--broken", "2")))
    assert servers(home) == 0
    assert provision(fleet, row, plan).output_tokens == 1


def test_a_machine_without_room_is_refused_with_the_numbers(tmp_path: Path) -> None:
    """M13, M17: before anything is downloaded."""
    plan = make_plan(make_kit(tmp_path), 8080, architecture=86)
    good = Facts(room_for(plan), 0, "RTX 3090", 580, 86)
    judge(plan, good)
    judge(plan, replace(good, free=0, held=room_for(plan)))
    for bad, words in (
        (replace(good, free=good.free - 1), rf"{good.free - 1:,} bytes are free.*{good.free:,}"),
        (replace(good, card="", capability=0), "shows no card"),
        (replace(good, driver=579), "driver 579"),
        (replace(good, capability=89), "is sm_89, sm_86"),
    ):
        with pytest.raises(HostBrokenError, match=words):
            judge(plan, bad)
    judge(replace(plan, architecture=0), replace(good, card="", driver=0, capability=0))
    assert KEY not in repr(plan)


@pytest.fixture
def serving() -> Iterator[Callable[[Path], str]]:
    """Serves a file over HTTP with ranges."""
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    files: dict[str, bytes] = {}

    class Files(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = files[self.path]
            asked = self.headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-")
            start = int(asked)
            self.send_response(206 if start else 200)
            if start:
                self.send_header("content-range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.send_header("content-length", str(len(data) - start))
            self.end_headers()
            self.wfile.write(data[start:])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    def add(path: Path) -> str:
        files[f"/{path.name}"] = path.read_bytes()
        return f"http://127.0.0.1:{server.server_port}/{path.name}"

    yield add
    server.shutdown()
    server.server_close()
    thread.join()


def test_plan_in_words_is_refused_before_anything_is_rented(tmp_path: Path) -> None:
    from ninfer.fleet.provision_options import ProvisionOptions, plan_of
    from tests.fleet.scene import settings_in

    kit = make_kit(tmp_path)
    settings = settings_in(tmp_path, NINFER_API_KEY=KEY)
    good = ProvisionOptions(kit=str(kit.file), model="int-27b")
    plan = plan_of(settings, good, "rtx3090")
    assert plan.architecture == 86 and plan.kit.sha256 == kit.sha256
    assert plan.options[:2] == ("--max-context", "65536")
    assert plan_of(settings, replace(good, model=""), "rtx5090").model.name == "nvfp4-27b"
    assert plan_of(settings, replace(good, model=""), "rtx3090").model.name == "qwen38-27b"
    for bad, words in (
        (replace(good, kit=""), "no kit"),
        (replace(good, kit="https://kits.example/k"), "--kit-sha256"),
        (replace(good, kit_sha256="3" * 64), "not 3333"),
        (replace(good, kit_sha256="3"), "64 hexadecimal"),
        (replace(good, model="nvfp4-27b"), "needs capability 10"),
        (replace(good, model="gpt"), "unknown; known"),
        (replace(good, serve_port=0), "--serve-port 0"),
    ):
        with pytest.raises(UsageError, match=words):
            plan_of(settings, bad, "rtx3090")
    with pytest.raises(UsageError, match="NINFER_API_KEY"):
        plan_of(settings_in(tmp_path), good, "rtx3090")
    assert json.dumps(plan.options)


@pytest.mark.soak
def test_a_server_that_dies_at_once_is_given_up_after_five(
    machine: tuple[Fleet, Contract], home: Path, tmp_path: Path
) -> None:
    fleet, row = machine
    plan = make_plan(make_kit(tmp_path), free_port(), "--broken", "1")
    with pytest.raises(VerificationError, match="no such layer"):
        provision(fleet, row, plan)
    assert (home / ".ninfer" / "serve.log").read_text().count("starting") == 5


# Stands where a repository has its package: `kit build` gives what lies in `made`.
BUILDS = """
import shutil, sys
folder = sys.argv[sys.argv.index("--output") + 1]
print("compiling for", sys.argv[4])
shutil.copytree("made", folder)
"""


def repository_of(kit: Source, folder: Path) -> str:
    """The address of a repository whose `kit build` gives this kit."""
    (folder / "ninfer").mkdir(parents=True)
    (folder / "made").mkdir()
    (folder / "ninfer" / "__init__.py").write_text("")
    (folder / "ninfer" / "__main__.py").write_text(BUILDS)
    assert kit.file is not None
    shutil.copy(kit.file, folder / "made" / "x.kit.tar.gz")
    who = ("-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "made")):
        subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)
    return f"file://{folder}"


def test_a_kit_is_built_on_the_machine_once(
    machine: tuple[Fleet, Contract], home: Path, tmp_path: Path
) -> None:
    fleet, row = machine
    kit = make_kit(tmp_path)
    where = (repository_of(kit, tmp_path / "repository"), "main")
    plan = make_plan(Source(None, "", "", build=where), free_port())
    first = provision(fleet, row, plan)
    assert list(first.seconds)[:4] == ["check", "system", "build", "kit"]
    assert {"build", "kit"} <= set(first.done) and first.kit == kit.id
    assert "compiling for 0" in (home / ".ninfer" / "build.log").read_text()
    assert provision(fleet, row, plan).done == ["health", "token"]
    broken = replace(plan, kit=Source(None, "", "", build=(where[0], "no-such-branch")))
    with pytest.raises(VerificationError, match="the build failed"):
        provision(fleet, row, broken)


def test_which_kit_the_variables_mean(tmp_path: Path) -> None:
    def plan(**variables: str) -> Source:
        settings = load_settings({"NINFER_API_KEY": KEY, **variables}, tmp_path, tmp_path)
        return plan_of(settings, ProvisionOptions(), "RTX 3090").kit

    built = plan(NINFER_KIT_SHA256="", NINFER_SRC_BRANCH="v1")
    assert built.build == ("", "v1")
    told = plan(NINFER_KIT_URL="https://kits.example/a", NINFER_KIT_SHA256="A" * 64)
    assert (told.url, told.sha256, told.build) == ("https://kits.example/a", "a" * 64, None)
    with pytest.raises(UsageError, match="NINFER_KIT_SHA256 is not set"):
        plan(NINFER_KIT_URL="https://kits.example/a")
    with pytest.raises(UsageError, match="no kit to install: give --kit FILE"):
        plan(NINFER_KIT_SHA256="b" * 64)
    local = make_kit(tmp_path)
    assert plan(NINFER_KIT_URL=str(local.file)) == local
    settings = load_settings({"NINFER_API_KEY": KEY, "NINFER_KIT_SHA256": ""}, tmp_path, tmp_path)
    with pytest.raises(UsageError, match="kits are built for a card"):
        plan_of(settings, ProvisionOptions(no_card=True, model="tiny"), "")


def test_the_token_of_a_private_store_is_in_a_header_and_then_gone(
    machine: tuple[Fleet, Contract], home: Path, tmp_path: Path
) -> None:
    fleet, row = machine
    kit = make_kit(tmp_path)
    assert kit.file is not None
    seen: list[str | None] = []

    class Store(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            assert kit.file is not None
            data = kit.file.read_bytes()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Store) as store:
        threading.Thread(target=store.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{store.server_port}/kit"
        private = Source(None, url, kit.sha256, token="token-5f1")
        assert "token-5f1" not in repr(private)
        provision(fleet, row, make_plan(private, free_port()))
        store.shutdown()
    assert seen == ["token-5f1"]
    for file in (home / ".ninfer").rglob("*"):
        assert not file.is_file() or b"token-5f1" not in file.read_bytes(), file
