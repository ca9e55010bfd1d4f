"""Input items of the Responses protocol to turns of a conversation."""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ninfer.errors import PromptError
from ninfer.json_text import parse_json
from ninfer.request import ContentPart, Message, Role, ToolCall
from ninfer.server.errors import Refusal, wrong
from ninfer.server.responses.tools import shown_name

# What a provider ran itself in an earlier part of the conversation.
_HOSTED: Final = (
    "apply_patch_call",
    "code_interpreter_call",
    "computer_call",
    "file_search_call",
    "image_generation_call",
    "local_shell_call",
    "mcp_",
    "shell_call",
    "tool_search_",
    "web_search_call",
)
_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_TEXTS: Final = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "summary_text": "text",
    "refusal": "refusal",
}
_SEALED: Final = "ninfer-thought-1."


def sealed(thought: str) -> str:
    """A thought as clients keep it that take none in the open."""
    return _SEALED + base64.b64encode(thought.encode("utf-8", "surrogatepass")).decode()


def unsealed(text: object) -> str | None:
    """What `sealed` was given; None for anything that it did not give."""
    if not isinstance(text, str) or not text.startswith(_SEALED):
        return None
    try:
        data = base64.b64decode(text.removeprefix(_SEALED), validate=True)
        return data.decode("utf-8", "surrogatepass")
    except (binascii.Error, ValueError):
        return None


class Turns:
    """Collects items. Those of one answer become one turn of the assistant."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        """`notice` hears the types of items that are left out."""
        self._notice = notice
        self._turns: list[Message] = []
        self._calls: set[str] = set()
        self._reset()

    def add(self, items: Sequence[Any], where: str) -> None:
        """More items, in order; `where` names their list. Raises Refusal naming the place."""
        for index, item in enumerate(items):
            place = f"{where}[{index}]"
            if not isinstance(item, Mapping):
                raise wrong(place, item, "it must be an object")
            self._item(item, place)

    def ended(self) -> list[Message]:
        """All turns."""
        self._flush()
        return self._turns

    def _item(self, item: Mapping[str, Any], place: str) -> None:
        kind = item.get("type", "message" if "role" in item else None)
        match kind:
            case "message":
                self._message(item, place)
            case "reasoning":
                self._reasoning(item, place)
            case "function_call" | "custom_tool_call":
                self._call(item, place, custom=kind == "custom_tool_call")
            case "function_call_output" | "custom_tool_call_output":
                self._output(item, place)
            case str() if kind.startswith(_HOSTED):
                self._notice(kind)
            case _:
                raise wrong(
                    f"{place}.type", kind, "use message, reasoning, function_call or an output"
                )

    def _message(self, item: Mapping[str, Any], place: str) -> None:
        role = _ROLES.get(str(item.get("role")))
        if role is None:
            raise wrong(f"{place}.role", item.get("role"), f"use one of {', '.join(_ROLES)}")
        parts = parts_of(item.get("content"), f"{place}.content")
        if role != "assistant":
            self._flush()
            self._turns.append(Message(role, tuple(parts)))
            return
        if self._parts and not self._made:
            self._flush()  # a second message without a call between them is a second answer
        self._parts += parts
        self._is_open = True

    def _reasoning(self, item: Mapping[str, Any], place: str) -> None:
        if self._parts and not self._made:
            self._flush()
        text = _texts(item.get("content"), f"{place}.content")
        if text is None:
            text = unsealed(item.get("encrypted_content"))
        if text is None:
            text = _texts(item.get("summary"), f"{place}.summary")
        if text is not None:
            self._thoughts.append(text)
            self._is_open = True

    def _call(self, item: Mapping[str, Any], place: str, *, custom: bool) -> None:
        name = shown_name(_text(item, "name", place), item.get("namespace"))
        call_id = _text(item, "call_id", place)
        if custom:
            arguments: Any = {"input": _text(item, "input", place)}
        else:
            arguments = _arguments(item.get("arguments"), f"{place}.arguments")
        self._calls.add(call_id)
        self._made.append(ToolCall(name, arguments, call_id))
        self._is_open = True

    def _output(self, item: Mapping[str, Any], place: str) -> None:
        call_id = _text(item, "call_id", place)
        if call_id not in self._calls:
            raise Refusal(
                f"No tool call found for function call output with call_id {call_id[:80]}.",
                code="unsupported_value",
                param=f"{place}.call_id",
            )
        self._flush()
        parts = parts_of(item.get("output"), f"{place}.output")
        self._turns.append(Message("tool", tuple(parts), tool_call_id=call_id))

    def _flush(self) -> None:
        if self._is_open:
            reasoning = "\n\n".join(self._thoughts) if self._thoughts else None
            made = tuple(self._made)
            self._turns.append(Message("assistant", tuple(self._parts), reasoning, made))
        self._reset()

    def _reset(self) -> None:
        self._is_open = False
        self._thoughts: list[str] = []
        self._parts: list[ContentPart] = []
        self._made: list[ToolCall] = []


def parts_of(content: object, place: str) -> list[ContentPart]:
    """The parts of a message or of an output. Raises Refusal naming the place."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [ContentPart("text", content)]
    if not isinstance(content, list):
        raise wrong(place, content, "it must be text or a list of parts")
    return [_part(item, f"{place}[{index}]") for index, item in enumerate(content)]


def _part(item: object, place: str) -> ContentPart:
    if not isinstance(item, Mapping):
        raise wrong(place, item, "it must be an object")
    kind = item.get("type")
    if isinstance(kind, str) and kind in _TEXTS:
        return ContentPart("text", _text(item, _TEXTS[kind], place))
    if kind in ("input_image", "image_url"):
        return ContentPart("image", source=_source(item, "image_url", place), place=place)
    if kind in ("input_video", "video_url"):
        return ContentPart("video", source=_source(item, "video_url", place), place=place)
    raise wrong(f"{place}.type", kind, "use input_text or input_image; files cannot be read")


def _source(item: Mapping[str, Any], member: str, place: str) -> str:
    given = item.get(member)
    source = given.get("url") if isinstance(given, Mapping) else given
    if not isinstance(source, str) or not source:
        if item.get("file_id") is not None:
            raise wrong(
                f"{place}.file_id", item["file_id"], f"no files are kept here; give {member}"
            )
        raise wrong(f"{place}.{member}", given, "give a URL or a data URI")
    return source


def _texts(parts: object, place: str) -> str | None:
    """The texts of a list of parts; None where there is none."""
    if not parts:
        return None
    if not isinstance(parts, list) or not all(isinstance(part, Mapping) for part in parts):
        raise wrong(place, parts, "it must be a list of parts")
    return "\n\n".join(_text(part, "text", f"{place}[{index}]") for index, part in enumerate(parts))


def _arguments(value: object, place: str) -> Mapping[str, Any]:
    parsed = value
    if isinstance(value, str):
        parsed = parse_json(value, place, PromptError) if value.strip() else {}
    if parsed is None:
        return {}
    if not isinstance(parsed, Mapping):
        raise wrong(place, value, "it must be a JSON object")
    return parsed


def _text(fields: Mapping[str, Any], name: str, place: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise wrong(f"{place}.{name}", value, "it must be text")
    return value
