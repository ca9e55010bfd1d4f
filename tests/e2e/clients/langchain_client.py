"""LangChain's models on a server: ChatOpenAI on both protocols, ChatAnthropic. Prints JSON.

Arguments: the server's address, its key, two numbers, a PNG file.
"""

import base64
import json
import sys
from collections.abc import Callable
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

ROOT, KEY, LEFT, RIGHT, PICTURE = sys.argv[1:]


@tool
def multiply(a: int, b: int) -> int:
    """The product of two numbers."""
    return a * b


class Counted(BaseModel):
    """A word and a count."""

    word: str
    count: int


def chat(**options: Any) -> BaseChatModel:
    values = {"model": "tiny", "base_url": f"{ROOT}/v1", "api_key": KEY, "max_retries": 0}
    # For foreign addresses it asks for no usage of streams by itself.
    return ChatOpenAI(**{**values, "stream_usage": True, **options})


def responses(**options: Any) -> BaseChatModel:
    return chat(use_responses_api=True, **options)


def stored(**options: Any) -> BaseChatModel:
    return responses(use_previous_response_id=True, **options)


def messages(**options: Any) -> BaseChatModel:
    values = {"model": "tiny", "base_url": ROOT, "api_key": KEY, "max_retries": 0}
    return ChatAnthropic(**{**values, **options})


def two_steps(model: BaseChatModel, *, stream: bool) -> dict[str, Any]:
    """A task with a tool; what a stream brings is added up."""
    able = model.bind_tools([multiply])
    turns: list[Any] = [HumanMessage(f"Multiply {LEFT} and {RIGHT}.")]
    used = 0
    while True:
        answer = reduce(add, able.stream(turns)) if stream else able.invoke(turns)
        used += answer.usage_metadata["total_tokens"]
        turns.append(answer)
        if not answer.tool_calls:
            return {"text": answer.text, "used": used}
        turns += [multiply.invoke(call) for call in answer.tool_calls]


def shape(model: BaseChatModel, method: str) -> Any:
    return model.with_structured_output(Counted, method=method).invoke("Shape").model_dump()


def picture(model: BaseChatModel) -> str:
    data = base64.b64encode(Path(PICTURE).read_bytes()).decode()
    content = [
        {"type": "image", "base64": data, "mime_type": "image/png"},
        {"type": "text", "text": "Look"},
    ]
    return model.invoke([HumanMessage(content)]).text


def failure(ask: Callable[[str], Any], text: str) -> list[str]:
    """The library's name for what the server says, and those of its bases."""
    try:
        ask(text)
    except Exception as error:  # noqa: BLE001  # its name is what is asked for
        return [kind.__name__ for kind in type(error).__mro__]
    return []


WAYS: dict[str, Callable[..., BaseChatModel]] = {
    "chat": chat,
    "responses": responses,
    "stored": stored,
    "messages": messages,
}
METHODS = ("json_schema", "function_calling")


def tried(make: Callable[..., BaseChatModel]) -> dict[str, Any]:
    return {
        "whole": two_steps(make(), stream=False),
        "streamed": two_steps(make(), stream=True),
        "shapes": [shape(make(), method) for method in METHODS],
        "picture": picture(make()),
        "too long": failure(make().invoke, "long " * 20000),
        "too long, streamed": failure(lambda text: list(make().stream(text)), "long " * 20000),
        "wrong key": failure(make(api_key="wrong").invoke, "hello"),
    }


if __name__ == "__main__":
    json.dump({name: tried(make) for name, make in WAYS.items()}, sys.stdout)
