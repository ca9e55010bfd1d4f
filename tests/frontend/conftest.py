"""A small tokenizer with the demo chat template, built once."""

import pytest

from ninfer.convert.byte_tokenizer import build_tokenizer
from ninfer.frontend import Frontend


@pytest.fixture(scope="session")
def resources() -> dict[str, bytes]:
    return build_tokenizer(800)


@pytest.fixture(scope="session")
def frontend(resources) -> Frontend:
    return Frontend.from_resources(resources)
