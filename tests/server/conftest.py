"""One server of the micro model for all tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Server, serving


@pytest.fixture(scope="module")
def server(micro_artifacts: dict[str, Path]) -> Iterator[Server]:
    with serving(micro_artifacts["dense"]) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test the server has nothing under way."""
    yield
    if "server" in request.fixturenames:
        request.getfixturevalue("server").settled()
