"""The server's own cost, with a stub in the place of the model."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Server, serving_engine
from stub_runtime import stubbed

from ninfer.engine import Engine, EngineOptions

READERS = Path(__file__).parent / "stream_readers.py"
STREAMS = 64


def read(server: Server, streams: int, tokens: int) -> dict[str, Any]:
    command = [sys.executable, str(READERS), *map(str, (server.port, streams, tokens))]
    found: dict[str, Any] = json.loads(subprocess.check_output(command))
    return found


@pytest.fixture
def engine(micro_artifacts: dict[str, Path]) -> Engine:
    return Engine.load(
        EngineOptions(
            artifact=micro_artifacts["dense"],
            max_context=256,
            max_concurrency=STREAMS,
            device="cpu",
        )
    )


def test_a_token_is_with_the_client_within_milliseconds(engine: Engine) -> None:
    """First byte within 5 ms of the token, and as many chunks as steps."""
    stub = stubbed(engine, seconds=0.02)
    with serving_engine(engine) as server:
        server.scripts.texts.clear()
        found = read(server, 1, 60)
    lags = [got - drawn for got, drawn in zip(found["times"], stub.drawn, strict=False)]
    assert len(found["times"]) >= 55, "pieces came in lumps"
    assert statistics.median(lags) < 0.005
    assert lags[0] < 0.05


def test_answers_on_a_connection_that_is_kept_come_at_once(server: Server) -> None:
    """Held back by the kernel until an acknowledgement, each would take 40 ms."""
    with httpx.Client(base_url=server.url) as client:
        seconds = []
        for _ in range(25):
            begun = time.perf_counter()
            assert client.post("/tokenize", json={"prompt": "a"}).status_code == 200
            seconds.append(time.perf_counter() - begun)
    assert statistics.median(seconds) < 0.02


def test_many_streams_cost_little(engine: Engine) -> None:
    """Whatever the machine does besides: all tokens come, far faster than any model makes them."""
    stubbed(engine)
    with serving_engine(engine) as server:
        server.scripts.texts.clear()
        found = read(server, STREAMS, 200)
    assert found["chunks"] >= STREAMS
    assert STREAMS * 200 / found["seconds"] > 2_000


@pytest.mark.soak
def test_twenty_thousand_tokens_a_second(
    engine: Engine, record_property: Callable[[str, object], None]
) -> None:
    """64 streams on two cores, client included."""
    stubbed(engine)
    with serving_engine(engine) as server:
        server.scripts.texts.clear()
        rates = [STREAMS * 2000 / read(server, STREAMS, 2000)["seconds"] for _ in range(3)]
    record_property("count", round(max(rates)))
    record_property("unit", "tokens a second over 64 streams")
    assert max(rates) > 20_000
