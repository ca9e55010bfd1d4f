"""JSON-like messages and tools of clients to one normal `Conversation`.

Accepted are the shapes of OpenAI Chat Completions, with the part and tool names of the Responses
and Anthropic APIs where they say the same. What the chat template could not render is refused
here, naming the place and the value.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, cast

from ninfer.errors import PromptError
from ninfer.json_text import parse_json
from ninfer.request import (
    ContentPart,
    Conversation,
    Message,
    PartKind,
    Role,
    TemplateOptions,
    ToolCall,
)

_ROLES: Final = {"developer": "system"} | {
    name: name for name in ("system", "user", "assistant", "tool")
}
# Part type -> member that holds the text.
_TEXT_PARTS: Final = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}
# Part type -> kind and members that may hold the source.
_MEDIA_PARTS: Final[dict[str, tuple[PartKind, tuple[str, ...]]]] = {
    "image": ("image", ("image", "image_url")),
    "image_url": ("image", ("image_url", "image")),
    "input_image": ("image", ("image_url",)),
    "video": ("video", ("video", "video_url")),
    "video_url": ("video", ("video_url", "video")),
}


def parse_conversation(
    messages: object, tools: object = None, template: TemplateOptions | None = None
) -> Conversation:
    """Check and normalise decoded JSON; see `normalise` for what is changed.

    Raises PromptError naming the first wrong place.
    """
    turns = [
        _message(item, f"messages[{index}]")
        for index, item in enumerate(_list(messages, "messages"))
    ]
    offers = () if tools is None else _list(tools, "tools")
    return Conversation(
        messages=normalise(turns),
        tools=tuple(_tool(item, f"tools[{index}]") for index, item in enumerate(offers)),
        template=template or TemplateOptions(),
    )


def normalise(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages in the order and number that chat templates expect.

    All system messages, late ones too, become one at the front, their texts joined by a blank
    line. Results of one round of tool calls are put in the order of the calls if all their ids are
    known, since templates link them by order alone. Raises PromptError if there are no messages,
    if a tool result answers nothing, or if a system message holds media.
    """
    if not messages:
        raise PromptError("messages is empty; give at least one user message")
    rest = [message for message in messages if message.role != "system"]
    if rest and rest[0].role == "tool":
        raise PromptError("the first turn is a tool result; put the assistant's call before it")
    system = [message for message in messages if message.role == "system"]
    return (*_one_system(system), *_in_call_order(rest))


def _one_system(messages: Sequence[Message]) -> tuple[Message, ...]:
    texts = []
    for message in messages:
        if any(part.kind != "text" for part in message.content):
            raise PromptError("a system message holds an image or video; move it to a user message")
        texts.append("".join(part.text for part in message.content))
    if not messages:
        return ()
    joined = "\n\n".join(text for text in texts if text.strip()) if len(texts) > 1 else texts[0]
    return (Message("system", (ContentPart("text", joined),)),)


def _in_call_order(messages: Sequence[Message]) -> list[Message]:
    ordered: list[Message] = []
    results: list[Message] = []
    place: dict[str | None, int] = {}
    for message in (*messages, None):
        if message is not None and message.role == "tool":
            results.append(message)
            continue
        if all(result.tool_call_id in place for result in results):
            results.sort(key=lambda result: place[result.tool_call_id])
        ordered += results
        results = []
        if message is not None:
            ordered.append(message)
            place = {call.id: index for index, call in enumerate(message.tool_calls) if call.id}
    return ordered


def _message(item: object, where: str) -> Message:
    fields = _object(item, where)
    role = fields.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        _fail(f"{where}.role", role, f"use one of {', '.join(_ROLES)}")
    if fields.get("function_call") is not None:
        _fail(f"{where}.function_call", fields["function_call"], "use tool_calls")
    calls = fields.get("tool_calls") or ()
    if calls and role != "assistant":
        _fail(f"{where}.tool_calls", calls, "only assistant messages make calls")
    call_id = fields.get("tool_call_id")
    if role == "tool" and not isinstance(call_id, str):
        _fail(f"{where}.tool_call_id", call_id, "name the call that this result answers")
    content, thoughts = _content(fields.get("content"), f"{where}.content")
    return Message(
        role=cast(Role, _ROLES[role]),
        content=content,
        reasoning=_reasoning(fields, thoughts, where) if role == "assistant" else None,
        tool_calls=tuple(
            _tool_call(call, f"{where}.tool_calls[{index}]")
            for index, call in enumerate(_list(calls, f"{where}.tool_calls"))
        ),
        tool_call_id=call_id if role == "tool" else None,
    )


def _reasoning(fields: Mapping[str, Any], thoughts: list[str], where: str) -> str | None:
    given = [
        fields[name] for name in ("reasoning_content", "reasoning") if fields.get(name) is not None
    ]
    if thoughts:
        given.append("".join(thoughts))
    for text in given:
        if not isinstance(text, str):
            _fail(f"{where}.reasoning_content", text, "it must be text")
        if text != given[0]:
            _fail(f"{where}.reasoning", text, "it contradicts the other reasoning of the message")
    return given[0] if given else None


def _content(value: object, where: str) -> tuple[tuple[ContentPart, ...], list[str]]:
    """Parts to show, and the texts of `thinking` parts."""
    if value is None:
        return (), []
    if isinstance(value, str):
        return ((ContentPart("text", value),) if value else ()), []
    if not isinstance(value, list | tuple):
        _fail(where, value, "it must be text, null or a list of parts")
    parts: list[ContentPart] = []
    thoughts: list[str] = []
    for index, item in enumerate(value):
        place = f"{where}[{index}]"
        fields = _object(item, place)
        kind = fields.get("type")
        if not isinstance(kind, str):
            _fail(f"{place}.type", kind, "use text, image_url or video_url")
        if kind == "thinking":
            thoughts.append(_text(fields, "thinking", place))
        elif kind in _TEXT_PARTS:
            parts.append(ContentPart("text", _text(fields, _TEXT_PARTS[kind], place)))
        elif kind in _MEDIA_PARTS:
            parts.append(_media(fields, *_MEDIA_PARTS[kind], place))
        else:
            _fail(f"{place}.type", kind, "use text, image_url or video_url")
    return tuple(parts), thoughts


def _media(
    fields: Mapping[str, Any], kind: PartKind, members: Sequence[str], where: str
) -> ContentPart:
    member = next((name for name in members if fields.get(name) is not None), members[0])
    source = fields.get(member)
    if isinstance(source, Mapping):
        source = source.get("url")
    if not isinstance(source, str) or not source:
        _fail(f"{where}.{member}", source, "give a path, URL or data URI")
    return ContentPart(kind, source=source, place=where)


def _tool_call(item: object, where: str) -> ToolCall:
    fields = _object(item, where)
    call_id = fields.get("id")
    if call_id is not None and not isinstance(call_id, str):
        _fail(f"{where}.id", call_id, "it must be text")
    function = _object(fields.get("function"), f"{where}.function")
    return ToolCall(
        name=_text(function, "name", f"{where}.function"),
        arguments=_arguments(function.get("arguments"), f"{where}.function.arguments"),
        id=call_id,
    )


def _arguments(value: object, where: str) -> Mapping[str, Any]:
    parsed = value
    if isinstance(value, str):
        parsed = parse_json(value, where, PromptError) if value.strip() else {}
    if parsed is None:
        return {}
    if not isinstance(parsed, Mapping):
        _fail(where, value, "it must be a JSON object")
    return parsed


def _tool(item: object, where: str) -> Mapping[str, Any]:
    """The client's object unchanged, or the nested form of a flat one."""
    fields = _object(item, where)
    if "function" in fields:
        function = _object(fields["function"], f"{where}.function")
        _text(function, "name", f"{where}.function")
        return fields
    kind = fields.get("type")
    if kind not in (None, "function", "custom") or (
        kind == "custom" and "input_schema" not in fields
    ):
        _fail(f"{where}.type", kind, "only function tools can be offered")
    function = {"name": _text(fields, "name", where)}
    if "description" in fields:
        function["description"] = fields["description"]
    for member in ("parameters", "input_schema"):
        if member in fields:
            function["parameters"] = fields[member]
    return {"type": "function", "function": function}


def _text(fields: Mapping[str, Any], name: str, where: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        _fail(f"{where}.{name}", value, "it must be text")
    return value


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        _fail(where, value, "it must be an object")
    return value


def _list(value: object, where: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        _fail(where, value, "it must be a list")
    return value


def _fail(where: str, value: object, advice: str) -> NoReturn:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    raise PromptError(f"{where} is {shown}; {advice}")
