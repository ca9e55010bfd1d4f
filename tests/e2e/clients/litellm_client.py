"""LiteLLM's ways to a server: chat, Responses and Messages. Prints what it got, as JSON.

Arguments: the server's address, its key, two numbers, a PNG file.
"""

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import litellm

ROOT, KEY, LEFT, RIGHT, PICTURE = sys.argv[1:]
QUESTION = f"Multiply {LEFT} and {RIGHT}."
PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
ABOUT = {"name": "multiply", "description": "The product of two numbers."}
SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["word", "count"],
    "additionalProperties": False,
}
CHAT = {"api_base": f"{ROOT}/v1", "api_key": KEY, "max_retries": 0}


def multiply(arguments: str) -> str:
    values = json.loads(arguments)
    return str(values["a"] * values["b"])


def ask(model: str, messages: list[Any], *, stream: bool, **options: Any) -> Any:
    """The whole response, put together by the library where it was streamed."""
    if not stream:
        return litellm.completion(model, messages, **CHAT, **options)
    chunks = list(
        litellm.completion(
            model, messages, stream=True, stream_options={"include_usage": True}, **CHAT, **options
        )
    )
    return litellm.stream_chunk_builder(chunks, messages=messages)


def chat(model: str, *, stream: bool) -> dict[str, Any]:
    """A task in two steps by Chat Completions."""
    tools = [{"type": "function", "function": {**ABOUT, "parameters": PARAMETERS}}]
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    used = 0
    thoughts = []
    while True:
        response = ask(model, messages, stream=stream, tools=tools)
        message = response.choices[0].message
        used += response.usage.prompt_tokens + response.usage.completion_tokens
        thoughts.append(message.reasoning_content)
        messages.append(message)
        if not message.tool_calls:
            return {"text": message.content, "thoughts": thoughts, "used": used}
        assert response.choices[0].finish_reason == "tool_calls"
        for call in message.tool_calls:
            content = multiply(call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


def responses(*, stream: bool) -> dict[str, Any]:
    """The same by Responses, the second step by the id of the first response."""
    tools = [{"type": "function", **ABOUT, "parameters": PARAMETERS}]
    said: Any = QUESTION
    previous = None
    used = 0
    while True:
        answer = litellm.responses(
            said,
            "openai/tiny",
            tools=tools,
            stream=stream,
            previous_response_id=previous,
            **CHAT,
        )
        if stream:
            (answer,) = (event.response for event in answer if event.type == "response.completed")
        used += answer.usage.total_tokens
        previous = answer.id
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return {"text": answer.output[-1].content[0].text, "used": used}
        said = [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": multiply(call.arguments),
            }
            for call in calls
        ]


async def messages(model: str, base: str) -> dict[str, Any]:
    """The same by Messages: straight, or translated by the library to another protocol."""
    tools = [{**ABOUT, "input_schema": PARAMETERS}]
    turns: list[Any] = [{"role": "user", "content": QUESTION}]
    used = 0
    while True:
        answer = await litellm.anthropic_messages(
            max_tokens=512, messages=turns, model=model, tools=tools, api_base=base, api_key=KEY
        )
        used += answer["usage"]["input_tokens"] + answer["usage"]["output_tokens"]
        blocks = answer["content"]
        calls = [block for block in blocks if block["type"] == "tool_use"]
        if not calls:
            return {"text": blocks[-1]["text"], "used": used}
        results = [
            {
                "type": "tool_result",
                "tool_use_id": call["id"],
                "content": multiply(json.dumps(call["input"])),
            }
            for call in calls
        ]
        turns += [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]


def shape() -> Any:
    asked = [{"role": "user", "content": "Shape"}]
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA, "strict": True}}
    response = litellm.completion("openai/tiny", asked, response_format=form, **CHAT)
    return json.loads(response.choices[0].message.content)


def picture() -> str:
    data = base64.b64encode(Path(PICTURE).read_bytes()).decode()
    content = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "text", "text": "Look"},
    ]
    asked = [{"role": "user", "content": content}]
    return litellm.completion("hosted_vllm/tiny", asked, **CHAT).choices[0].message.content


def failure(text: str, model: str = "tiny", **options: Any) -> str:
    """The library's name for what the server says."""
    asked = [{"role": "user", "content": text}]
    try:
        litellm.completion(f"openai/{model}", asked, **CHAT | options)
    except Exception as error:  # noqa: BLE001  # its name is what is asked for
        return type(error).__name__
    return "nothing"


def main() -> None:
    found = {
        "chat": chat("openai/tiny", stream=False),
        "chat streamed": chat("openai/tiny", stream=True),
        "vllm": chat("hosted_vllm/tiny", stream=False),
        "vllm streamed": chat("hosted_vllm/tiny", stream=True),
        "responses": responses(stream=False),
        "responses streamed": responses(stream=True),
        "messages": asyncio.run(messages("anthropic/tiny", ROOT)),
        "messages as responses": asyncio.run(messages("openai/tiny", f"{ROOT}/v1")),
        "messages as chat": asyncio.run(messages("hosted_vllm/tiny", f"{ROOT}/v1")),
        "shape": shape(),
        "picture": picture(),
        "too long": failure("long " * 20000),
        "wrong key": failure("hello", api_key="wrong"),
        "unknown model": failure("hello", model="other"),
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
