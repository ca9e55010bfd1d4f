"""Client libraries against our server: tools in two steps, objects, pictures, errors."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.e2e.foreign import CLIENTS, client_environment, run_client
from tests.e2e.library_model import LAST_THOUGHT, THOUGHT, library_author
from tests.e2e.scripted_engine import ScriptedEngine, scripted_server
from tests.server.serving import Server

pytestmark = [pytest.mark.e2e, pytest.mark.clients, pytest.mark.timeout(600)]

SCRIPTS = Path(__file__).resolve().parent / "clients"
KEY = "sk-of-the-test"
OBJECT = {"word": "tick", "count": 3}
SEEN = "I see [(1, 24, 32)]."


@pytest.fixture(scope="module")
def served(micro_artifacts: dict[str, Path]) -> Iterator[tuple[Server, ScriptedEngine]]:
    with scripted_server(micro_artifacts["dense"], context=16384, api_key=(KEY,)) as running:
        yield running


class Library:
    """A script of `clients/`, run on a product of two numbers that it has never seen."""

    def __init__(self, server: Server, engine: ScriptedEngine, folder: Path) -> None:
        self.server, self.engine, self.folder = server, engine, folder
        self.numbers = [100 + secrets.randbelow(900) for _ in range(2)]
        engine.author = library_author
        engine.readings.clear()

    @property
    def answer(self) -> str:
        return f"The product is {self.numbers[0] * self.numbers[1]}."

    def tokens_of_two_steps(self) -> int:
        """Tokens of both steps, which are the same in all tasks; the second begins as the first."""
        steps = [one for one in self.engine.readings if "Multiply" in one.prompt.text]
        assert steps and len(steps) % 2 == 0
        used = set()
        for first, second in zip(steps[::2], steps[1::2], strict=True):
            assert second.prompt.token_ids[: len(first.ids)] == first.ids
            used.add(len(first.ids) + len(second.ids))
        (tokens,) = used
        return tokens

    def run(self, program: str, script: str) -> dict[str, Any]:
        """What it found, by the name of what it tried."""
        picture = self.folder / "picture.png"
        Image.new("RGB", (512, 384), (208, 32, 32)).save(picture)
        words = [CLIENTS / "bin" / program, SCRIPTS / script, self.server.url, KEY]
        words += [*self.numbers, picture]
        printed = run_client(list(map(str, words)), client_environment(self.folder), self.folder)
        return json.loads(printed.splitlines()[-1])


@pytest.fixture
def library(served: tuple[Server, ScriptedEngine], tmp_path: Path) -> Iterator[Library]:
    made = Library(*served, tmp_path)
    yield made
    made.server.settled()
    assert made.engine.refused == []


def test_litellm(library: Library) -> None:
    """Chat, Responses and Messages, the latter also as LiteLLM translates them to the others."""
    found = library.run("python", "litellm_client.py")
    used = library.tokens_of_two_steps()
    task = {"text": library.answer, "used": used}
    for way in ("chat", "vllm"):
        for how in ("", " streamed"):
            assert found[way + how] == {**task, "thoughts": [THOUGHT, LAST_THOUGHT]}
    assert found["responses"] == found["responses streamed"] == task
    for way in ("messages", "messages as responses", "messages as chat"):
        assert found[way] == task, way
    assert found["shape"] == OBJECT
    assert found["picture"] == SEEN
    assert found["too long"] == "ContextWindowExceededError"
    assert found["wrong key"] == "AuthenticationError"
    assert found["unknown model"] == "NotFoundError"


def test_langchain(library: Library) -> None:
    """ChatOpenAI on Chat and on Responses, with and without stored ones; ChatAnthropic."""
    found = library.run("python", "langchain_client.py")
    task = {"text": library.answer, "used": library.tokens_of_two_steps()}
    assert list(found) == ["chat", "responses", "stored", "messages"]
    for way, tried in found.items():
        assert tried["whole"] == tried["streamed"] == task, way
        assert tried["shapes"] == [OBJECT, OBJECT]
        assert tried["picture"] == SEEN
        assert "ContextOverflowError" in tried["too long"]
        # LangChain has no other name for a stream of Responses that ends by an error.
        streamed = "ContextOverflowError" if way in ("chat", "messages") else "ValueError"
        assert streamed in tried["too long, streamed"], way
        assert "ModelAuthenticationError" in tried["wrong key"]
