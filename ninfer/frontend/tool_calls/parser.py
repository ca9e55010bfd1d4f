"""What a parser of tool calls does, and which one reads the calls of a request."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ninfer.frontend.tool_calls.declared import declared_tools
from ninfer.frontend.tool_calls.qwen_xml import QwenXmlParser
from ninfer.request import OutputEvent


class ToolCallParser(Protocol):
    """Finds calls in the text of one answer that comes in pieces. One parser per answer.

    Joined, the content and the arguments of each call do not depend on how the text is cut.
    """

    def feed(self, text: str) -> list[OutputEvent]:
        """What this text makes certain."""

    def finish(self, *, cut: bool) -> list[OutputEvent]:
        """What was held back, at the end of the text.

        `cut` says that the model would have gone on: then an open call stays incomplete.
        """


def new_tool_call_parser(
    tools: Sequence[Mapping[str, Any]], *, enforced: bool = False
) -> ToolCallParser | None:
    """The parser for an answer to a request with these tools (the client's objects).

    None without tools: then tags of calls are text. `enforced` says that the answer follows a
    `ToolCallSpec`, whose grammar and the parser then agree on where each value ends. The form of a
    call belongs to the model family, which was trained on it; all families here write the XML form.
    It is not read off the chat template, since one that replaces the model's may show no call.
    """
    if not tools:
        return None
    return QwenXmlParser(declared_tools(tools), new_call_id, enforced=enforced)


def new_call_id() -> str:
    """A fresh id: random, since clients keep calls of many requests in one conversation."""
    return f"call_{secrets.token_hex(12)}"
