"""Two replicas of the micro model behind a gateway for all tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from gateway_serving import ClusterServer, cluster


@pytest.fixture(scope="module")
def server(
    micro_artifacts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterServer]:
    with cluster(micro_artifacts["dense"], tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test the replicas have nothing under way."""
    yield
    if "server" in request.fixturenames:
        request.getfixturevalue("server").settled()
