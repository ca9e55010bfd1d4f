"""Zed and Open WebUI, which do not install from a registry of packages: their requests replayed.

Each is connected as its user does it; addresses, names and abilities come from what was written.
"""

import base64
import json
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from ninfer.cli import main
from ninfer.connect.jsonc import parse
from tests.e2e.foreign import CLIENTS, client_environment, run_client
from tests.e2e.library_model import KEY, LAST_THOUGHT, SEEN, THOUGHT, drawn, library_author
from tests.e2e.scripted_engine import ScriptedEngine, scripted_server
from tests.server.serving import Server

pytestmark = [pytest.mark.e2e, pytest.mark.clients]

PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
ABOUT = {"name": "multiply", "description": "A product.", "parameters": PARAMETERS}
Served = tuple[Server, ScriptedEngine]


@pytest.fixture(scope="module")
def served(micro_artifacts: dict[str, Path]) -> Iterator[Served]:
    with scripted_server(micro_artifacts["dense"], context=16384, api_key=(KEY,)) as running:
        yield running


@pytest.fixture
def engine(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The model that is asked, in a home and a folder of the test's own."""
    server, scripted = served
    scripted.author = library_author
    scripted.readings.clear()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NINFER_API_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    yield scripted
    server.settled()
    assert scripted.refused == []


@pytest.fixture
def numbers() -> list[int]:
    return [100 + secrets.randbelow(900) for _ in range(2)]


def picture(folder: Path) -> str:
    data = base64.b64encode(drawn(folder).read_bytes()).decode()
    return f"data:image/png;base64,{data}"


def lines_of(url: str, body: dict[str, Any], **headers: str) -> list[str]:
    """The lines of a stream."""
    headers = {"authorization": f"Bearer {KEY}", **headers}
    with (
        httpx.Client(timeout=60) as client,
        client.stream("POST", url, json=body, headers=headers) as reply,
    ):
        assert reply.status_code == 200, reply.read()
        return list(reply.iter_lines())


def multiply(arguments: str) -> str:
    values = json.loads(arguments)
    return str(values["a"] * values["b"])


def added_up(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the deltas make, as both clients put it together, and the usage."""
    message: dict[str, Any] = {"content": "", "reasoning": "", "calls": {}, "usage": None}
    for chunk in chunks:
        message["usage"] = chunk.get("usage") or message["usage"]
        for choice in chunk["choices"]:
            delta = choice.get("delta") or {}
            message["content"] += delta.get("content") or ""
            message["reasoning"] += delta.get("reasoning_content") or ""
            message["finish"] = choice.get("finish_reason") or message.get("finish")
            for piece in delta.get("tool_calls") or []:
                call = message["calls"].setdefault(piece["index"], {"name": "", "arguments": ""})
                call["id"] = piece.get("id") or call.get("id")
                for member in ("name", "arguments"):
                    call[member] += piece.get("function", {}).get(member) or ""
    return message


class Zed:
    """Zed's agent panel: what it asks by its settings, and how strictly it reads."""

    def __init__(self, server: Server, folder: Path) -> None:
        assert main(["connect", "zed", server.url, "--write"]) == 0
        file = folder / ".config" / "zed" / "settings.json"
        provider = parse(file.read_text(), "f").value["language_models"]["openai_compatible"]
        self.url = provider["ninfer"]["api_url"]
        (self.model,) = provider["ninfer"]["available_models"]

    def ask(self, messages: list[Any], **members: Any) -> dict[str, Any]:
        able = self.model["capabilities"]
        assert able["chat_completions"] and able["interleaved_reasoning"] and able["images"]
        body = {
            "model": self.model["name"],
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_completion_tokens": self.model["max_output_tokens"],
            "temperature": 1.0,
            "parallel_tool_calls": able["parallel_tool_calls"],
            "tools": [{"type": "function", "function": ABOUT}],
            **members,
        }
        lines = lines_of(f"{self.url}/chat/completions", body)
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data:")]
        assert data.pop() == "[DONE]"
        chunks = [json.loads(line) for line in data]
        for chunk in chunks:
            self.check(chunk)
        return added_up(chunks)

    def check(self, chunk: dict[str, Any]) -> None:
        """One member of another type ends an answer."""
        for choice in chunk["choices"]:
            assert type(choice["index"]) is int
            delta = choice["delta"]
            assert delta.get("role") in (None, "assistant")
            assert isinstance(delta.get("content"), str | None)
            assert isinstance(delta.get("reasoning_content"), str | None)
            assert all(type(piece["index"]) is int for piece in delta.get("tool_calls") or [])
        if usage := chunk.get("usage"):
            for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
                assert type(usage[name]) is int and usage[name] >= 0


def test_zed_does_a_task_in_two_steps(
    served: Served, engine: ScriptedEngine, tmp_path: Path, numbers: list[int]
) -> None:
    zed = Zed(served[0], tmp_path)
    turns: list[Any] = [
        {"role": "system", "content": "You are in an editor."},
        {"role": "user", "content": "Multiply {} and {}.".format(*numbers)},
    ]
    first = zed.ask(turns, tool_choice="auto")
    (call,) = first["calls"].values()
    assert (first["reasoning"], first["finish"]) == (THOUGHT, "tool_calls")
    function = {"name": call["name"], "arguments": json.dumps(json.loads(call["arguments"]))}
    said = {"id": call["id"], "type": "function", "function": function}
    turns += [
        {"role": "assistant", "content": None, "tool_calls": [said], "reasoning_content": THOUGHT},
        {"role": "tool", "content": multiply(call["arguments"]), "tool_call_id": call["id"]},
    ]
    second = zed.ask(turns)
    assert second["content"] == f"The product is {numbers[0] * numbers[1]}."
    before, after = engine.readings
    assert after.prompt.token_ids[: len(before.ids)] == before.ids
    assert second["usage"]["total_tokens"] == len(after.ids)


def test_zed_hands_over_what_tools_show_or_do_not_say(
    served: Served, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """A result of text and a picture, an empty one, and a question with a picture."""
    zed = Zed(served[0], tmp_path)
    seen = {"type": "image_url", "image_url": {"url": picture(tmp_path)}}
    text = {"type": "text", "text": "Look"}
    calls = [
        {"id": name, "type": "function", "function": {"name": "multiply", "arguments": "{}"}}
        for name in ("one", "two")
    ]
    turns = [
        {"role": "user", "content": "Show me"},
        {"role": "assistant", "content": "Soon.", "tool_calls": calls},
        {
            "role": "tool",
            "content": [{"type": "text", "text": "Here"}, seen],
            "tool_call_id": "one",
        },
        {"role": "tool", "content": [], "tool_call_id": "two"},
        {"role": "user", "content": [text, seen]},
    ]
    assert zed.ask(turns)["content"] == "I see [(1, 24, 32), (1, 24, 32)]."
    (reading,) = engine.readings
    assert "<tool_response>\n\n</tool_response>" in reading.prompt.text


def test_zed_on_responses(
    served: Served, engine: ScriptedEngine, tmp_path: Path, numbers: list[int]
) -> None:
    """Its other protocol, for which a user turns chat_completions off."""
    zed = Zed(served[0], tmp_path)
    question = "Multiply {} and {}.".format(*numbers)
    asked = [{"type": "input_text", "text": question}]
    items: list[Any] = [{"type": "message", "role": "user", "content": asked}]
    body = {
        "model": zed.model["name"],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "stream": True,
        "temperature": 1.0,
        "max_output_tokens": zed.model["max_output_tokens"],
        "parallel_tool_calls": False,
        "tools": [{"type": "function", **ABOUT}],
        "reasoning": {"effort": "medium", "summary": "auto"},
    }
    for _ in range(2):
        lines = lines_of(f"{zed.url}/responses", {**body, "input": items})
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        done = json.loads(data[-1])
        assert done["type"] == "response.completed"
        for item in done["response"]["output"]:
            if item["type"] == "reasoning":
                items.append(item)
            if item["type"] == "function_call":
                called = {name: item[name] for name in ("type", "call_id", "name", "arguments")}
                given = {"call_id": item["call_id"], "output": multiply(item["arguments"])}
                items += [called, {"type": "function_call_output", **given}]
    (said,) = done["response"]["output"][-1]["content"]
    assert said["text"] == f"The product is {numbers[0] * numbers[1]}."
    before, after = engine.readings
    assert after.prompt.token_ids[: len(before.ids)] == before.ids


class WebUI:
    """Open WebUI's server side: what it asks for a chat, and beside it."""

    def __init__(self, server: Server, folder: Path) -> None:
        assert main(["connect", "open-webui", server.url, "--write"]) == 0
        # It reads its file by this library.
        script = "import dotenv, json; print(json.dumps(dict(dotenv.dotenv_values('.env'))))"
        python = [str(CLIENTS / "bin" / "python"), "-c", script]
        environment = client_environment(folder, NINFER_API_KEY=KEY)
        values = json.loads(run_client(python, environment, folder))
        self.url, key = str(values["OPENAI_API_BASE_URLS"]), values["OPENAI_API_KEYS"]
        self.headers = {"authorization": f"Bearer {key}", "x-openwebui-user-name": "A%20B"}
        models = httpx.get(f"{self.url}/models", headers=self.headers, timeout=60).json()
        (self.model,) = (one["id"] for one in models["data"])

    def chat(self, messages: list[Any], **members: Any) -> dict[str, Any]:
        body = {
            "stream": True,
            "model": self.model,
            "messages": messages,
            "stream_options": {"include_usage": True},
            **members,
        }
        lines = lines_of(f"{self.url}/chat/completions", body, **self.headers)
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        return added_up([json.loads(line) for line in data if line != "[DONE]"])

    def task(self, text: str) -> str:
        """A title, tags, questions to follow: small requests that are not streamed."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            "stream": False,
            "max_completion_tokens": 1000,
        }
        with httpx.Client(timeout=60, headers=self.headers) as client:
            reply = client.post(f"{self.url}/chat/completions", json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()["choices"][0]["message"]["content"]


@pytest.mark.parametrize("thoughts", ["none", "field", "tags"])
def test_open_webui_does_a_task_in_two_steps(
    thoughts: str, served: Served, engine: ScriptedEngine, tmp_path: Path, numbers: list[int]
) -> None:
    """Its thoughts come back as the connection is set: not at all, in a field, or in tags."""
    web = WebUI(served[0], tmp_path)
    able = {"tools": [{"type": "function", "function": ABOUT}], "temperature": 0.7, "top_p": 0.9}
    question = "Multiply {} and {}.".format(*numbers)
    turns: list[Any] = [{"role": "user", "content": question}]
    first = web.chat(turns, **able)
    (call,) = first["calls"].values()
    function = {"name": call["name"], "arguments": call["arguments"]}
    said = {"id": call["id"], "type": "function", "function": function, "index": 0}
    back: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [said]}
    if thoughts == "field":
        back["reasoning_content"] = first["reasoning"]
    if thoughts == "tags":
        back["content"] = f"<think>{first['reasoning']}</think>"
    result = {"role": "tool", "tool_call_id": call["id"], "content": multiply(call["arguments"])}
    second = web.chat([*turns, back, result], **able)
    assert second["content"] == f"The product is {numbers[0] * numbers[1]}."
    assert second["reasoning"] == LAST_THOUGHT
    before, after = engine.readings
    assert after.prompt.token_ids[: len(before.ids)] == before.ids
    assert second["usage"]["total_tokens"] == len(after.ids)


def test_open_webui_asks_for_titles_beside_a_chat(
    served: Served, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """A picture in the chat, and three small requests at the same time."""
    web = WebUI(served[0], tmp_path)
    seen = {"type": "image_url", "image_url": {"url": picture(tmp_path)}}
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look"}, seen]},
    ]
    with ThreadPoolExecutor(4) as pool:
        chat = pool.submit(web.chat, turns, params={}, seed=1, stop=["END"])
        tasks = pool.map(web.task, ["Title", "Tags", "Questions"])
        assert chat.result()["content"] == SEEN
        assert list(tasks) == ["Hello."] * 3
