"""Client libraries against our server: tools in two steps, objects, pictures, errors."""

import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.foreign import CLIENTS, client_environment, run_client
from tests.e2e.library_model import KEY, LAST_THOUGHT, OBJECT, SEEN, THOUGHT, drawn, library_author
from tests.e2e.scripted_engine import ScriptedEngine, scripted_server
from tests.server.serving import Server

pytestmark = [pytest.mark.e2e, pytest.mark.clients, pytest.mark.timeout(600)]

SCRIPTS = Path(__file__).resolve().parent / "clients"


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
    def product(self) -> int:
        return self.numbers[0] * self.numbers[1]

    @property
    def answer(self) -> str:
        return f"The product is {self.product}."

    def tokens_of_tasks(self) -> list[int]:
        """Tokens of both steps of each task; the second step begins as the first has ended."""
        steps = [one for one in self.engine.readings if "multiply" in str(one.prompt.tools)]
        tokens = []
        for first, second in zip(steps[::2], steps[1::2], strict=True):
            assert second.prompt.token_ids[: len(first.ids)] == first.ids
            tokens.append(len(first.ids) + len(second.ids))
        return tokens

    def run(self, program: str, script: str) -> dict[str, Any]:
        """What it found, by the name of what it tried."""
        words = [CLIENTS / "bin" / program, SCRIPTS / script, self.server.url, KEY]
        words += [*self.numbers, drawn(self.folder)]
        printed = run_client(
            list(map(str, words)),
            client_environment(self.folder, CLIENTS=str(CLIENTS)),
            self.folder,
        )
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
    (used,) = set(library.tokens_of_tasks())
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
    (used,) = set(library.tokens_of_tasks())
    task = {"text": library.answer, "used": used}
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


LLM_MODELS = """
- {model_id: chat, ABLE}
- {model_id: responses, responses: true, ABLE}
- {model_id: completion, completion: true, SERVED}
"""
LLM_ABLE = "supports_tools: true, supports_schema: true, vision: true, SERVED"


def test_llm(library: Library) -> None:
    """Simon Willison's command line: its tool loop, a session, a schema, a picture, completions."""
    folder = library.folder
    served = f"model_name: tiny, api_base: {library.server.url}/v1, api_key_name: own"
    models = LLM_MODELS.replace("ABLE", LLM_ABLE).replace("SERVED", served)
    (folder / "extra-openai-models.yaml").write_text(models)
    (folder / "keys.json").write_text(json.dumps({"own": KEY}))
    environment = client_environment(folder, LLM_USER_PATH=str(folder))

    def llm(*words: str) -> str:
        return run_client([str(CLIENTS / "bin" / "llm"), *words], environment, folder).strip()

    tool = "def multiply(a: int, b: int) -> int:\n    return a * b\n"
    task = f"Multiply {library.numbers[0]} and {library.numbers[1]}."
    for model in ("chat", "responses"):
        for how in ((), ("--no-stream",)):
            assert llm("-m", model, "--functions", tool, *how, task) == library.answer
        assert llm("-c", "Recall") == f"It was {library.product}."
        assert json.loads(llm("-m", model, "--schema", "word, count int", "Shape")) == OBJECT
        assert llm("-m", model, "-a", str(drawn(folder)), "Look") == SEEN
    assert llm("-m", "completion", "Once upon a time") == "Hello."
    logged = json.loads(llm("logs", "-n", "0", "--json"))
    tokens = [one["input_tokens"] + one["output_tokens"] for one in logged if one["tools"]]
    assert sum(tokens) == sum(library.tokens_of_tasks())


def test_vercel_ai_sdk(library: Library) -> None:
    """Its providers for Chat, Responses and Messages."""
    found = library.run("node", "ai_sdk.mjs")
    (used,) = set(library.tokens_of_tasks())
    assert list(found) == ["compatible", "chat", "responses", "messages"]
    for way, tried in found.items():
        # OpenAI's own provider shows summaries of thoughts only, which no local model writes.
        shown = [THOUGHT, LAST_THOUGHT] if way in ("compatible", "messages") else ["", ""]
        task = {"text": library.answer, "thoughts": shown, "used": used}
        assert tried["whole"] == tried["streamed"] == task, way
        assert tried["shape"] == OBJECT
        assert tried["picture"] == SEEN
        long, wrong = tried["too long"], tried["wrong key"]
        assert re.search(r"prompt is too long|maximum context length is 16384", long["message"])
        assert (long["status"], wrong["status"]) == (400, 401)
        assert not long["again"] and not wrong["again"]
