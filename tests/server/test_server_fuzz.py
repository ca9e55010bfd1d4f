"""Requests made from our own OpenAPI page: no 5xx, and no status that the page does not have."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from serving import Server, serving

# Room for a conversation with tools, and few answers, whatever a request asks.
ENGINE = {"max_context": 1024, "max_concurrency": 2, "max_pending_requests": 4}
LONGEST_MS = 100


@contextmanager
def small_server(artifact: Path) -> Iterator[Server]:
    """A server whose answers end soon."""
    with serving(artifact, engine=ENGINE, default_max_tokens=4) as running:
        running.service.defaults = replace(running.service.defaults, deadline_ms=LONGEST_MS)
        yield running


@pytest.fixture(scope="module")
def small(micro_artifacts: dict[str, Path]) -> Iterator[Server]:
    with small_server(micro_artifacts["dense"]) as running:
        yield running


def operations_of(server: Server) -> list[Any]:
    """The operations of the page. Objects inside of bodies get no members that the page does not
    name, which take most of the time to make; bodies themselves do."""
    page = httpx.get(f"{server.url}/openapi.json", timeout=60).json()
    for path in page["paths"].values():
        for operation in path.values():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            for member in body.get("schema", {}).get("properties", {}).values():
                close(member)
    found = schemathesis.openapi.from_dict(page).get_all_operations()
    operations = [result.ok() for result in found]
    assert len(operations) >= 9
    return operations


def close(schema: Any) -> None:
    if isinstance(schema, dict):
        if schema.get("type") == "object" and schema.get("properties"):
            schema.setdefault("additionalProperties", False)
        for part in schema.values():
            close(part)
    elif isinstance(schema, list):
        for part in schema:
            close(part)


def run(server: Server, count: int) -> int:
    """Send `count` made requests to each operation; gives how many were sent."""
    operations = operations_of(server)
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
    sent = run(small, 520)
    record_property("count", sent)
    record_property("unit", "requests made from the OpenAPI page")
    assert sent >= 10_000
