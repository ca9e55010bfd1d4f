"""Fetching from a server that breaks off, lies or moves; full disks; two at once (M16, M17)."""

import errno
import hashlib
import multiprocessing
import random
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from hub_server import COMMIT, OLD_COMMIT, HubState, hub_server

from ninfer.artifact import fetch as fetching
from ninfer.artifact import published, transfer
from ninfer.artifact.fetch import Hub, fetch
from ninfer.artifact.framing import NEWEST
from ninfer.artifact.published import ALIASES, PUBLISHED, PublishedArtifact, find_published
from ninfer.errors import ArtifactError, FetchError, UsageError

CONTENT = random.Random(1).randbytes(1_000_003)
OLDER = random.Random(2).randbytes(900_001)
FUTURE = random.Random(3).randbytes(10_007)


def registered(content: bytes, framing: int, revision: str | None = None) -> PublishedArtifact:
    digest = hashlib.sha256(content).hexdigest()
    names = ("demo", "model/weights", "owner/name", "m.ninfer")
    return PublishedArtifact(*names, framing, len(content), digest, revision)


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> HubState:
    items = (registered(CONTENT, 3), registered(OLDER, 2), registered(FUTURE, NEWEST + 1))
    monkeypatch.setattr(published, "PUBLISHED", items)
    original = transfer.download
    monkeypatch.setattr(fetching, "download", lambda *a: original(*a, pause=0.001))
    return HubState(CONTENT)


@pytest.fixture
def endpoint(state: HubState) -> Iterator[str]:
    with hub_server(state) as address:
        yield address


def get(directory: Path, endpoint: str, revision: str | None = None, **options: str) -> Path:
    hub = Hub(endpoint, **options)
    return fetch("demo", directory, lambda *_: None, revision=revision, hub=hub)


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("transfer", ["http", "hub"])
def test_a_whole_file_arrives_and_nothing_else_is_left(
    state: HubState, endpoint: str, tmp_path: Path, transfer: str
) -> None:
    path = get(tmp_path / "new", endpoint, transfer=transfer)
    assert path == tmp_path / "new" / "m.ninfer"
    assert path.read_bytes() == CONTENT
    assert listing(path.parent) == ["m.ninfer"]
    # The head is resolved once, so that it cannot move between question and transfer.
    assert {path for path, _ in state.requests} == {f"/owner/name/resolve/{COMMIT}/m.ninfer"}
    assert state.authorization == {None}


def test_progress_reaches_the_end(state: HubState, endpoint: str, tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    fetch("demo", tmp_path, lambda *c: calls.append(c), hub=Hub(endpoint))
    assert ("m.ninfer", len(CONTENT), len(CONTENT)) in calls
    assert all(name == "m.ninfer" and done <= total for name, done, total in calls)


def test_a_token_is_sent_only_when_given(state: HubState, endpoint: str, tmp_path: Path) -> None:
    get(tmp_path, endpoint, token="secret")
    assert state.authorization == {"Bearer secret"}


def test_a_broken_connection_goes_on_where_it_broke(
    state: HubState, endpoint: str, tmp_path: Path
) -> None:
    state.break_after = [300_000, 0, 1]
    assert get(tmp_path, endpoint).read_bytes() == CONTENT
    ranges = [wanted for _, wanted in state.requests]
    assert ranges == [None, "bytes=300000-", "bytes=300000-", "bytes=300001-"]


def test_a_later_call_goes_on(state: HubState, endpoint: str, tmp_path: Path) -> None:
    state.break_after = [300_000, *[0] * 5]
    with pytest.raises(FetchError, match=r"no byte in 5 attempts .* 300,000 of 1,000,003 bytes"):
        get(tmp_path, endpoint)
    (partial,) = listing(tmp_path)
    assert partial.startswith(".m.ninfer.") and partial.endswith(".partial")
    state.requests.clear()
    assert get(tmp_path, endpoint).read_bytes() == CONTENT
    assert [wanted for _, wanted in state.requests] == ["bytes=300000-"]
    assert listing(tmp_path) == ["m.ninfer"]


def test_one_missing_byte_is_not_taken_for_the_end(
    state: HubState, endpoint: str, tmp_path: Path
) -> None:
    """M16: a short file is no whole one."""
    state.break_after = [len(CONTENT) - 1]
    assert get(tmp_path, endpoint).read_bytes() == CONTENT
    assert state.requests[-1][1] == f"bytes={len(CONTENT) - 1}-"


def test_a_server_that_ignores_ranges_starts_over(
    state: HubState, endpoint: str, tmp_path: Path
) -> None:
    """M16: what comes from the start again is not put behind what is there."""
    state.break_after, state.ignore_range = [300_000], True
    assert get(tmp_path, endpoint).read_bytes() == CONTENT


def test_a_busy_server_is_asked_again(state: HubState, endpoint: str, tmp_path: Path) -> None:
    state.statuses = [503, 429]
    assert get(tmp_path, endpoint).read_bytes() == CONTENT
    state.statuses = [403]
    with pytest.raises(FetchError, match="answers '403' to a request from byte 0"):
        get(tmp_path / "other", endpoint)


def test_a_slow_server_is_waited_for(state: HubState, endpoint: str, tmp_path: Path) -> None:
    state.delay = 0.02
    assert get(tmp_path, endpoint).read_bytes() == CONTENT
    assert len(state.requests) == 1


def test_a_server_that_falls_silent_is_asked_again(
    state: HubState, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_TIMEOUT", httpx.Timeout(0.3))
    state.stalls = [1.0]
    assert get(tmp_path, endpoint).read_bytes() == CONTENT
    # Twice; a machine that stalls makes more silences.
    assert len(state.requests) >= 2


@pytest.mark.parametrize("transfer", ["http", "hub"])
def test_a_wrong_byte_is_never_used(
    state: HubState, endpoint: str, tmp_path: Path, transfer: str
) -> None:
    """M16 and scenario 9: corrupt weights never get their name."""
    middle = len(CONTENT) // 2
    state.send_other = CONTENT[:middle] + bytes([CONTENT[middle] ^ 1]) + CONTENT[middle + 1 :]
    with pytest.raises(FetchError, match=r"has SHA-256 .* not .*; it was removed"):
        get(tmp_path, endpoint, transfer=transfer)
    assert listing(tmp_path) == []
    state.send_other = None
    assert get(tmp_path, endpoint, transfer=transfer).read_bytes() == CONTENT


def test_a_wrong_partial_file_is_found_out(state: HubState, endpoint: str, tmp_path: Path) -> None:
    state.break_after = [300_000, *[0] * 5]
    with pytest.raises(FetchError):
        get(tmp_path, endpoint)
    (partial,) = tmp_path.iterdir()
    partial.write_bytes(b"\0" * 300_000)
    with pytest.raises(FetchError, match="it was removed"):
        get(tmp_path, endpoint)
    assert listing(tmp_path) == []


@pytest.mark.parametrize("length", [len(CONTENT) + 1, len(CONTENT) - 1])
def test_another_length_than_stated(
    state: HubState, endpoint: str, tmp_path: Path, length: int
) -> None:
    state.send_other = (CONTENT + b"x")[:length]
    with pytest.raises(FetchError, match=r"sent more|answers '206 bytes|no byte in 5|416"):
        get(tmp_path, endpoint)
    assert "m.ninfer" not in listing(tmp_path)


def test_a_moved_head_is_named(state: HubState, endpoint: str, tmp_path: Path) -> None:
    """K1: what the head of the repository holds today is not what this version knows."""
    moved = b"something else"
    state.revisions["main"] = ("c" * 40, moved)
    digest = hashlib.sha256(moved).hexdigest()
    with pytest.raises(FetchError, match=rf"main \(cccccccccccc\) holds another .*{digest}"):
        get(tmp_path, endpoint)
    assert state.requests == [] and listing(tmp_path) == []
    assert get(tmp_path, endpoint, revision=COMMIT).read_bytes() == CONTENT


def test_an_older_framing_by_revision(state: HubState, endpoint: str, tmp_path: Path) -> None:
    state.revisions[OLD_COMMIT] = (OLD_COMMIT, OLDER)
    assert get(tmp_path, endpoint, revision=OLD_COMMIT).read_bytes() == OLDER


def test_a_framing_too_new_is_refused_before_the_transfer(
    state: HubState, endpoint: str, tmp_path: Path
) -> None:
    state.revisions["main"] = ("d" * 40, FUTURE)
    with pytest.raises(FetchError, match=rf"main holds framing v{NEWEST + 1}, .* newer than this"):
        get(tmp_path, endpoint)
    assert state.requests == []


def test_a_pinned_revision_is_asked_for(
    state: HubState, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = registered(CONTENT, 3, revision=OLD_COMMIT)
    monkeypatch.setattr(published, "PUBLISHED", (pinned,))
    with pytest.raises(FetchError, match=f"revision {OLD_COMMIT} is not there; the repository was"):
        get(tmp_path, endpoint)
    state.revisions[OLD_COMMIT] = (COMMIT, CONTENT)
    with pytest.raises(FetchError, match=f"asked for revision {OLD_COMMIT}, the server gives a"):
        get(tmp_path, endpoint)


@pytest.mark.parametrize(
    ("member", "value", "message"),
    [
        ("repository", "owner/other", "owner/name: no such repository"),
        ("file", "n.ninfer", "has no file m.ninfer"),
        ("states_hash", False, "does not state commit, size and SHA-256 of m.ninfer"),
    ],
)
def test_what_is_not_there_is_named(
    state: HubState, endpoint: str, tmp_path: Path, member: str, value: object, message: str
) -> None:
    setattr(state, member, value)
    with pytest.raises(FetchError, match=message):
        get(tmp_path, endpoint)


def test_no_server(state: HubState, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="owner/name: the server cannot be asked"):
        get(tmp_path, "http://127.0.0.1:1")
    assert listing(tmp_path) == []


def test_too_little_room_is_refused_before_the_transfer(
    state: HubState, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M17: with the number, before a byte is sent."""
    usage = SimpleNamespace(free=1_000_003 + (64 << 20) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ArtifactError, match=r"1,000,003 bytes are needed.*68,108,866 free"):
        get(tmp_path, endpoint)
    assert state.requests == [] and listing(tmp_path) == []
    usage.free += 1
    assert get(tmp_path, endpoint).read_bytes() == CONTENT


class FullDisk:
    """A file that takes `room` bytes and then refuses as a full disk does."""

    def __init__(self, file, room: int) -> None:
        self._file, self._room = file, room

    def write(self, data: bytes) -> int:
        if self._file.tell() + len(data) > self._room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._file.write(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def __enter__(self) -> "FullDisk":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def test_a_disk_that_fills_up_keeps_what_has_arrived(
    state: HubState, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open

    def full(path: Path, mode: str = "r", *rest: object) -> object:
        file = opened(path, mode, *rest)
        return FullDisk(file, 700_000) if path.suffix == ".partial" and mode != "rb" else file

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with pytest.raises(FetchError, match=r"the disk is full; [\d,]+ of 1,000,003 bytes of m"):
            get(tmp_path, endpoint)
    (partial,) = tmp_path.iterdir()
    assert 0 < partial.stat().st_size <= 700_000
    assert get(tmp_path, endpoint).read_bytes() == CONTENT


def test_a_whole_file_is_not_fetched_again(state: HubState, endpoint: str, tmp_path: Path) -> None:
    (tmp_path / "m.ninfer").write_bytes(OLDER)
    assert get(tmp_path, endpoint).read_bytes() == OLDER
    (tmp_path / "m.ninfer").write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(FetchError, match="is there already, with 1,000,003 bytes, and is not a"):
        get(tmp_path, endpoint)
    assert state.requests == []


def test_a_folder_that_cannot_be_made(state: HubState, endpoint: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FetchError, match="cannot be written"):
        get(tmp_path / "file", endpoint)


def _fetch_in_child(folder: Path, endpoint: str, items: tuple[PublishedArtifact, ...]) -> None:
    published.PUBLISHED = items
    get(folder, endpoint)


def test_fetches_of_one_file_in_several_processes(
    state: HubState, endpoint: str, tmp_path: Path
) -> None:
    state.delay = 0.01
    context = multiprocessing.get_context("spawn")
    arguments = (tmp_path, endpoint, published.PUBLISHED)
    children = [context.Process(target=_fetch_in_child, args=arguments) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert listing(tmp_path) == ["m.ninfer"]
    assert (tmp_path / "m.ninfer").read_bytes() == CONTENT
    assert len(state.requests) == 1


def test_a_killed_fetch_leaves_what_the_next_goes_on_with(
    state: HubState, endpoint: str, tmp_path: Path
) -> None:
    state.delay = 0.1
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=_fetch_in_child, args=(tmp_path, endpoint, published.PUBLISHED))
    child.start()
    while not any(path.stat().st_size for path in tmp_path.glob(".*.partial")):
        assert child.is_alive()
        time.sleep(0.01)
    child.kill()
    child.join()
    assert "m.ninfer" not in listing(tmp_path) and ".m.ninfer.lock" in listing(tmp_path)
    state.delay = 0.0
    assert get(tmp_path, endpoint).read_bytes() == CONTENT
    assert listing(tmp_path) == ["m.ninfer"]
    first, second = (wanted for _, wanted in state.requests)
    assert first is None and second is not None and second != "bytes=0-"


def test_fetches_of_one_file_in_several_threads(
    state: HubState, endpoint: str, tmp_path: Path
) -> None:
    state.delay = 0.005
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(get(tmp_path, endpoint))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [tmp_path / "m.ninfer"] * 4
    assert listing(tmp_path) == ["m.ninfer"] and len(state.requests) == 1


def test_the_table_of_published_artifacts() -> None:
    assert ALIASES == ("int-27b", "nvfp4-27b", "moe-35b", "qwen38-27b", "qwen38-nvfp4-27b")
    assert len({item.sha256 for item in PUBLISHED}) == len(PUBLISHED) == 12
    for alias in ALIASES:
        newest, *older = find_published(alias)
        assert newest.framing == 3 and [item.framing for item in older] == sorted(
            (item.framing for item in older), reverse=True
        )
        assert find_published(newest.id) == (newest, *older)
        assert len(newest.sha256) == 64 and set(newest.sha256) <= set("0123456789abcdef")
    with pytest.raises(UsageError, match="'gpt-27b' is not a published artifact; known: int-27b"):
        find_published("gpt-27b")


def test_the_command(
    state: HubState,
    endpoint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ninfer.cli import main

    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    monkeypatch.setenv("HF_TOKEN", "t")
    assert main(["fetch", "demo", "--directory", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{tmp_path / 'm.ninfer'}\n"
    assert state.authorization == {"Bearer t"}
    assert main(["fetch", "nothing"]) == 2
    assert main(["fetch", "demo", "--transfer", "ftp"]) == 2
