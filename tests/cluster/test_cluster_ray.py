"""Real Ray, two replicas of `tiny` of one core each: deaths, updates and counts under load."""

import asyncio
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from ray_cluster import START_SECONDS, Load, RayCluster, ray_cluster

from ninfer.artifact.packaged import locate

pytestmark = pytest.mark.soak
KILLS = 50
LOOK_SECONDS = 0.2
TWO = ("--replicas", "2", "--max-concurrency", "4", "--replica-wait-s", "200")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with ray_cluster(tmp_path_factory.mktemp("two"), *TWO) as running:
        yield running


@contextmanager
def under(cluster: RayCluster, clients: int = 4) -> Iterator[Load]:
    """Clients that ask all the time; they have ended when the block has."""
    load = Load(cluster.url, clients)
    thread = threading.Thread(target=lambda: asyncio.run(load.run()))
    thread.start()
    try:
        yield load
    finally:
        load.end()
        thread.join()


def replaced(cluster: RayCluster, name: str) -> float:
    """Seconds until two serve again, `name` not among them."""
    began = time.monotonic()
    while True:
        names = [replica["replica"] for replica in cluster.serving()]
        if len(names) == 2 and name not in names:
            return time.monotonic() - began
        assert time.monotonic() - began < START_SECONDS, cluster.replicas()
        time.sleep(LOOK_SECONDS)


def test_all_protocols_answer_and_responses_are_stored_for_all(two: RayCluster):
    asked = [{"role": "user", "content": "What is 2 + 3?"}]
    with httpx.Client(base_url=two.url, timeout=120) as client:
        chat = client.post("/v1/chat/completions", json={"messages": asked, "max_tokens": 8})
        assert chat.json()["choices"][0]["finish_reason"] in ("stop", "length")
        body = {"messages": asked, "max_tokens": 8, "model": "tiny"}
        assert client.post("/v1/messages", json=body).json()["role"] == "assistant"
        streamed = client.post("/v1/completions", json={"prompt": "2", "stream": True}).text
        assert streamed.endswith("data: [DONE]\n\n")
        made = client.post("/v1/responses", json={"input": "hi", "max_output_tokens": 4}).json()
        home = two.serving()[0]
        os.kill(home["pid"], signal.SIGKILL)
        replaced(two, home["replica"])
        found = client.get(f"/v1/responses/{made['id']}")
        assert found.json()["output"] == made["output"]
        pages = client.get("/metrics").text
    for replica in two.serving():
        assert f'ninfer_engine_ready{{replica="{replica["replica"]}"}} 1.0' in pages


def test_killed_replicas_lose_double_and_hang_nothing(
    two: RayCluster, record_property: Callable[[str, object], None]
):
    seconds = []
    with under(two) as load:
        for number in range(KILLS):
            done = load.tally.whole
            while load.tally.whole == done and not load.tally.wrong:
                time.sleep(LOOK_SECONDS)
            victim = two.serving()[number % 2]
            os.kill(victim["pid"], signal.SIGKILL)
            seconds.append(replaced(two, victim["replica"]))
    assert load.tally.wrong == [] and load.tally.whole > KILLS
    record_property("count", KILLS)
    record_property(
        "unit",
        f"replicas killed under load, {load.tally.whole} whole answers, {load.tally.broken} "
        f"streams ended by an error event, replaced in {statistics.median(seconds):.1f} s (median)",
    )


def test_an_update_under_load_fails_no_request(
    two: RayCluster, tmp_path: Path, record_property: Callable[[str, object], None]
):
    other = tmp_path / "other.ninfer"
    shutil.copy(locate(Path("tiny")), other)
    with under(two) as load:
        while not load.tally.whole:
            time.sleep(LOOK_SECONDS)
        command = [sys.executable, "-m", "ninfer", "cluster", "update", str(other)]
        subprocess.run(command, check=True, timeout=600)
        shown = {replica["artifact"] for replica in two.serving()}
    assert shown == {str(other)}
    assert load.tally.wrong == [] and load.tally.broken == 0 and load.tally.whole > 0
    record_property("count", load.tally.whole)
    record_property("unit", "requests during a rolling update, none failed")
