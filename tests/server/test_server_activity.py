"""The file whose age is a server's idleness."""

import asyncio
import os
from pathlib import Path

import pytest

from ninfer.server import activity
from ninfer.server.activity import Activity


def age(path: Path, seconds: float) -> None:
    os.utime(path, (seconds, seconds))


def test_touched_at_both_ends_of_a_request(tmp_path: Path) -> None:
    path = tmp_path / "active"
    watched = Activity(path)
    assert not path.exists(), "it is not there before the server is"
    with watched.during():
        age(path, 1000)
    assert path.stat().st_mtime > 1000


def test_watch_touches_at_the_start_and_only_while_requests_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "active"
    watched = Activity(path)
    monkeypatch.setattr(activity, "_SECONDS", 0.001)

    async def scene() -> None:
        watch = asyncio.create_task(watched.watch())
        while not path.exists():
            await asyncio.sleep(0.001)
        age(path, 1000)
        await asyncio.sleep(0.05)
        assert path.stat().st_mtime == 1000
        with watched.during():
            age(path, 1000)
            while path.stat().st_mtime == 1000:
                await asyncio.sleep(0.001)
        watch.cancel()

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_a_file_that_cannot_be_touched_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Activity(tmp_path / "absent" / "active")
    for _ in range(3):
        with watched.during():
            pass
    assert len([record for record in caplog.records if "--activity-file" in record.message]) == 1
