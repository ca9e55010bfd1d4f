"""The official clients over a socket, and a trained model that has to be right: sums, tool calls
and the use of their results, pictures, structured answers; streamed and whole.
"""

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from anthropic import Anthropic
from openai import OpenAI

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "docs" / "demo"
TOOLS = json.loads((DEMO / "tools.json").read_text())
PICTURE = base64.b64encode((DEMO / "shapes.png").read_bytes()).decode()
SUM = "What is 9117 + 8364?"
ALL = {"temperature": 0.0}
# The client has no name for it any more; the protocol has.
COLD: dict[str, Any] = {"extra_body": ALL}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`ninfer serve tiny`, ready."""
    log = tmp_path_factory.mktemp("serve") / "log"
    words = ["serve", "tiny", "--vision", "--device", "cpu", "--port", "0", "--spec", "mtp"]
    with log.open("w") as file:
        server = subprocess.Popen(
            [sys.executable, "-m", "ninfer", *words], cwd=ROOT, stderr=file, stdout=file
        )
        try:
            end = time.monotonic() + 120
            while " at http://" not in (text := log.read_text()):
                assert server.poll() is None and time.monotonic() < end, text
                time.sleep(0.1)
            (line,) = [line for line in text.splitlines() if " at http://" in line]
            address = line.split()[-1]
            while True:
                try:
                    httpx.get(f"{address}/health", timeout=60)
                    break
                except httpx.TransportError:
                    assert time.monotonic() < end
                    time.sleep(0.1)
            yield address
        finally:
            server.terminate()
            assert server.wait(60) == 0


@pytest.fixture
def openai(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="none", timeout=120)


@pytest.fixture
def anthropic(url: str) -> Anthropic:
    return Anthropic(base_url=url, api_key="none", timeout=120)


def chat(client: OpenAI, **asked: Any) -> Any:
    return client.chat.completions.create(model="tiny", **ALL, **asked)


def user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


OFF = {"chat_template_kwargs": {"enable_thinking": False}}


def test_a_sum_thought_through_and_streamed(openai: OpenAI):
    whole = chat(openai, messages=user(SUM)).choices[0]
    assert whole.message.content == "9117 + 8364 = 17481" and whole.finish_reason == "stop"
    thought, text = "", ""
    for chunk in chat(openai, messages=user(SUM), stream=True):
        delta = chunk.choices[0].delta
        thought += getattr(delta, "reasoning_content", None) or ""
        text += delta.content or ""
    assert text == whole.message.content
    assert thought == whole.message.reasoning_content and "= 17: 17481" in thought


def test_a_tool_is_called_and_its_result_is_used(openai: OpenAI):
    asked = {"messages": TOOLS["messages"], "tools": TOOLS["tools"], "extra_body": OFF}
    message = chat(openai, **asked).choices[0].message
    (call,) = message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Vienna"}
    pieces = ""
    for chunk in chat(openai, **asked, stream=True):
        for part in chunk.choices[0].delta.tool_calls or ():
            pieces += part.function.arguments or ""
    assert json.loads(pieces) == {"city": "Vienna"}
    result = {"role": "tool", "tool_call_id": call.id, "content": '{"degrees": 7, "sky": "cloudy"}'}
    told = [*TOOLS["messages"], message.model_dump(exclude_none=True), result]
    answer = chat(openai, messages=told, tools=TOOLS["tools"], extra_body=OFF).choices[0].message
    assert "7 degrees" in answer.content and "cloudy" in answer.content and not answer.tool_calls


def test_a_picture_is_counted(openai: OpenAI, anthropic: Anthropic):
    question = "How many red circles are there?"
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
    parts = [image, {"type": "text", "text": question}]
    assert chat(openai, messages=user(parts), extra_body=OFF).choices[0].message.content == "3"
    source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
    blocks = [{"type": "image", "source": source}, {"type": "text", "text": question}]
    asked = {"max_tokens": 16, "thinking": {"type": "disabled"}, **COLD}
    reply = anthropic.messages.create(model="any", messages=user(blocks), **asked)
    assert [block.text for block in reply.content if block.type == "text"] == ["3"]


def test_messages_with_a_tool_and_its_result(anthropic: Anthropic):
    tools = [
        {
            "name": tool["function"]["name"],
            "description": tool["function"]["description"],
            "input_schema": tool["function"]["parameters"],
        }
        for tool in TOOLS["tools"]
    ]
    asked = {"model": "any", "max_tokens": 200, "tools": tools, **COLD}
    reply = anthropic.messages.create(messages=TOOLS["messages"], **asked)
    (use,) = [block for block in reply.content if block.type == "tool_use"]
    assert (use.name, use.input, reply.stop_reason) == (
        "get_weather",
        {"city": "Vienna"},
        "tool_use",
    )
    with anthropic.messages.stream(messages=TOOLS["messages"], **asked) as stream:
        assert stream.get_final_message().content[-1].input == {"city": "Vienna"}
    result = {
        "type": "tool_result",
        "tool_use_id": use.id,
        "content": '{"degrees": 21, "sky": "sunny"}',
    }
    told = [*TOOLS["messages"], {"role": "assistant", "content": reply.content}, *user([result])]
    text = anthropic.messages.create(messages=told, **asked).content[-1].text
    assert "21 degrees" in text and "sunny" in text


def test_responses_follow_on_from_each_other(openai: OpenAI):
    first = openai.responses.create(model="tiny", input=SUM, **ALL)
    assert first.output_text == "9117 + 8364 = 17481"
    again = openai.responses.create(
        model="tiny", input="What is 12 + 30?", previous_response_id=first.id, **ALL
    )
    assert again.output_text and again.previous_response_id == first.id
    assert again.usage.input_tokens > first.usage.input_tokens + 10
    kinds = [event.type for event in openai.responses.create(model="tiny", input=SUM, stream=True)]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"


def test_a_schema_holds(openai: OpenAI):
    schema = {
        "type": "object",
        "properties": {"sum": {"type": "integer"}},
        "required": ["sum"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema, "strict": True}}
    message = chat(openai, messages=user(SUM), response_format=form).choices[0].message
    assert set(json.loads(message.content)) == {"sum"}


def test_several_answers_logprobs_seeds_and_usage(openai: OpenAI):
    asked = {"messages": user("Say this in French: the dog"), "extra_body": OFF, "max_tokens": 12}
    both = chat(openai, **asked, n=2, logprobs=True, top_logprobs=3)
    assert len(both.choices) == 2 and both.choices[0].message == both.choices[1].message
    tokens = both.choices[0].logprobs.content
    assert all(item.logprob == max(top.logprob for top in item.top_logprobs) for item in tokens)
    asked |= {"seed": 5}
    sampled = [
        openai.chat.completions.create(model="tiny", temperature=1.5, **asked).choices[0].message
        for _ in range(2)
    ]
    assert sampled[0] == sampled[1]
    usage = chat(openai, messages=user(SUM)).usage
    assert usage.completion_tokens_details.reasoning_tokens > 40
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert [model.id for model in openai.models.list()]


def test_counting_and_completions(openai: OpenAI, anthropic: Anthropic):
    counted = anthropic.messages.count_tokens(model="any", messages=user(SUM)).input_tokens
    assert counted == chat(openai, messages=user(SUM)).usage.prompt_tokens
    text = openai.completions.create(model="tiny", prompt="9117 + 8364 =", max_tokens=8, **ALL)
    assert text.choices[0].text


def test_bench_of_streams(url: str, tmp_path: Path) -> None:
    """Its answers are written by a trained model: figures for all of them, and a verdict."""
    out = tmp_path / "report.json"
    words = ["bench", "1,2", "--server", url, "--tokens", "24", "-o", str(out)]
    environ = {**os.environ, "NINFER_PROJ": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "ninfer", *words],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "of 6 responses are usable" in done.stdout
    for row in json.loads(out.read_text())["rows"]:
        assert row["answered"] == row["streams"] and 0 < row["tokens"] <= 24 * row["streams"]
        assert row["per_stream"] > 0 and row["aggregate"] > 0 and row["tokens_per_round"] >= 1
