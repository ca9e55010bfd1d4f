"""Stored responses with the real client: kept, continued, listed, forgotten."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from scripted_calls import answer, call
from serving import Server, serving

TOOL: dict[str, Any] = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}
LIMIT = {"max_output_tokens": 120}


@pytest.fixture(scope="module")
def server(micro_artifacts: dict[str, Path]) -> Iterator[Server]:
    engine = {"max_context": 4096}
    options = {"response_store_max_records": 6, "api_key": ("one", "two")}
    with serving(micro_artifacts["dense"], engine=engine, **options) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with server.client(api_key="one") as asking:
        yield asking


def finished(client: openai.OpenAI, *, stream: bool, **options: Any) -> Any:
    fields: dict[str, Any] = {"model": "tiny", **LIMIT, **options}
    if not stream:
        return client.responses.create(**fields)
    return list(client.responses.create(**fields, stream=True))[-1].response


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@both
def test_a_response_is_kept_and_forgotten(
    server: Server, client: openai.OpenAI, stream: bool
) -> None:
    server.scripts.texts["soup"] = answer("hot", thought="T")
    made = finished(client, stream=stream, input="soup", metadata={"a": "b"})
    kept = client.responses.retrieve(made.id)
    assert kept.model_dump() == made.model_dump()
    items = client.responses.input_items.list(made.id)
    (given,) = items.data
    assert (given.role, given.id.split("_")[0]) == ("user", "msg")
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(made.id)
    with server.client(api_key="two") as other, pytest.raises(openai.NotFoundError):
        other.responses.retrieve(made.id)
    client.responses.delete(made.id)
    for gone in (client.responses.retrieve, client.responses.cancel, client.responses.delete):
        with pytest.raises(openai.NotFoundError, match="not found"):
            gone(made.id)


@both
def test_nothing_is_kept_that_should_not_be(
    server: Server, client: openai.OpenAI, stream: bool
) -> None:
    server.scripts.texts["soup"] = answer("hot")
    made = finished(client, stream=stream, input="soup", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as caught:
        finished(client, stream=stream, input="x", previous_response_id=made.id)
    assert caught.value.code == "previous_response_not_found"


@both
def test_a_conversation_goes_on_from_a_stored_response(
    server: Server, client: openai.OpenAI, stream: bool
) -> None:
    """Items of all responses before are in the prompt; instructions and tools are not."""
    server.scripts.texts = {
        "final word": answer("It was warm."),
        "<tool_response>": answer("Warm."),
        "weather": answer("", call("look", at="window"), thought="I look"),
    }
    first = finished(client, stream=stream, input="weather", tools=[TOOL], instructions="Be odd.")
    made = first.output[1]
    outputs = [{"type": "function_call_output", "call_id": made.call_id, "output": "sun"}]
    second = finished(
        client, stream=stream, input=outputs, tools=[TOOL], previous_response_id=first.id
    )
    assert (second.output_text, second.previous_response_id) == ("Warm.", first.id)
    third = finished(
        client, stream=stream, input="final word", previous_response_id=second.id, tools=[TOOL]
    )
    assert third.output_text == "It was warm."
    listed = client.responses.input_items.list(third.id, order="asc", limit=3)
    assert [item.type for item in listed.data] == ["message", "reasoning", "function_call"]
    assert [item.type for item in listed] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "message",
        "message",
    ]
    newest = client.responses.input_items.list(third.id, limit=1)
    assert newest.data[0].content[0].text == "final word"
    # A reference stands for the item that it names.
    again = finished(
        client,
        stream=stream,
        tools=[TOOL],
        input=[
            {"role": "user", "content": "weather"},
            {"type": "item_reference", "id": made.id},
            *outputs,
        ],
    )
    assert again.output_text == "Warm."


def test_the_oldest_responses_go_first(server: Server, client: openai.OpenAI) -> None:
    server.scripts.texts = {"soup": answer("hot")}
    made = [finished(client, stream=False, input="soup").id for _ in range(7)]
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made[0])
    assert client.responses.retrieve(made[1]).id == made[1]


def test_counting_gives_the_tokens_of_the_prompt(server: Server, client: openai.OpenAI) -> None:
    server.scripts.texts = {"soup": answer("hot")}
    fields: dict[str, Any] = {"model": "tiny", "input": "soup", "tools": [TOOL]}
    counted = client.responses.input_tokens.count(**fields)
    made = finished(client, stream=False, **{**fields, "instructions": None})
    assert counted.input_tokens == made.usage.input_tokens


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/responses/resp_x", 404, "response_not_found"),
        ("DELETE", "/v1/responses/resp_x", 404, "response_not_found"),
        ("GET", "/v1/responses/resp_x/input_items", 404, "response_not_found"),
        ("POST", "/v1/responses/resp_x/cancel", 404, "response_not_found"),
        ("POST", "/v1/responses/compact", 400, "compaction_not_supported"),
        ("GET", "/responses/resp_x?stream=true", 400, "unsupported_value"),
        ("PUT", "/v1/responses", 405, "method_not_allowed"),
    ],
)
def test_errors_of_the_routes(
    client: openai.OpenAI, server: Server, method: str, path: str, status: int, code: str
) -> None:
    headers = {"authorization": "Bearer one"}
    reply = client._client.request(method, f"{server.url}{path}", headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
