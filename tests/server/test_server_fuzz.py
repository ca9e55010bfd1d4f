"""Requests made from our own OpenAPI page: no 5xx, and no status that the page does not have."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from serving import Server, serving

# Keeps answers short, whatever a request asks.
ENGINE = {"max_context": 96, "max_concurrency": 4}


@pytest.fixture(scope="module")
def small(micro_artifacts: dict[str, Path]) -> Iterator[Server]:
    with serving(micro_artifacts["dense"], engine=ENGINE, default_max_tokens=4) as running:
        yield running


def run(server: Server, count: int) -> int:
    """Send `count` made requests to each operation; gives how many were sent."""
    page = httpx.get(f"{server.url}/openapi.json").json()
    schema = schemathesis.openapi.from_dict(page)
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) >= 9
    with httpx.Client(timeout=60) as client:
        sent = 0
        for operation in operations:
            sent += run_one(server, client, operation, count, GenerationMode.POSITIVE)
            if operation.body:
                sent += run_one(server, client, operation, count, GenerationMode.NEGATIVE)
    server.settled(60)
    return sent


def run_one(
    server: Server, client: httpx.Client, operation: Any, count: int, mode: GenerationMode
) -> int:
    """The same for one operation: requests that fit the page, or that break it."""
    statuses = set(map(int, operation.definition.raw["responses"]))
    sent = 0

    @settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        nonlocal sent
        sent += 1
        arguments = case.as_transport_kwargs(base_url=server.url)
        arguments.pop("timeout", None)
        arguments.pop("cookies", None)
        if "data" in arguments:
            arguments["content"] = arguments.pop("data")
        reply = client.request(**arguments)
        assert reply.status_code < 500, (arguments, reply.text)
        assert reply.status_code in statuses, (arguments, reply.status_code)

    send()
    return sent


def test_made_requests_get_documented_answers(small: Server) -> None:
    assert run(small, 8) >= 40


@pytest.mark.soak
def test_ten_thousand_made_requests(
    small: Server, record_property: Callable[[str, object], None]
) -> None:
    sent = run(small, 1300)
    record_property("count", sent)
    record_property("unit", "requests made from the OpenAPI page")
    assert sent >= 10_000
