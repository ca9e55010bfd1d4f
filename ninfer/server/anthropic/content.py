"""Messages of the Anthropic protocol to turns of a conversation."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ninfer.request import ContentPart, Message, ToolCall
from ninfer.server.errors import wrong

# Its text holds a number that is new in every request, at the head of the prompt.
_BILLING: Final = "x-anthropic-billing-header"
# What a provider ran itself in an earlier part of the conversation.
_HOSTED: Final = ("server_tool_use", "mcp_tool_use", "mcp_tool_result", "fallback")
_HOSTED_RESULTS: Final = (
    "web_search_",
    "web_fetch_",
    "code_execution_",
    "bash_code_execution_",
    "text_editor_code_execution_",
    "tool_search_",
    "advisor_",
)
_TOOL_CHANGES: Final = ("tool_addition", "tool_removal")


def turns_of(messages: Sequence[Any], system: object = None) -> list[Message]:
    """The turns, as they stand: results of tools before the other parts of their message.

    Raises Refusal naming the first wrong place.
    """
    turns = [Message("system", (part,)) for part in _system(system, "system")]
    if not messages:
        raise wrong("messages", messages, "give at least one message")
    for index, item in enumerate(messages):
        place = f"messages.{index}"
        fields = _object(item, place)
        content = fields.get("content")
        match fields.get("role"):
            case "user":
                turns += _user(content, f"{place}.content")
            case "assistant":
                turns.append(_assistant(content, f"{place}.content"))
            case "system":
                parts = _system(content, f"{place}.content")
                turns += [Message("system", (part,)) for part in parts]
            case role:
                raise wrong(f"{place}.role", role, "use user, assistant or system")
    return turns


def _system(content: object, place: str) -> list[ContentPart]:
    """Each block stands for itself."""
    parts = []
    if isinstance(content, str) and content.startswith(_BILLING):
        content = content.partition("\n")[2].lstrip()
    for block, where in _blocks(content, place):
        if block.get("type") in _TOOL_CHANGES:
            continue  # all tools of the request are shown always
        if block.get("type") != "text":
            raise wrong(f"{where}.type", block.get("type"), "a system message holds text")
        text = _text(block, "text", where)
        if not text.startswith(_BILLING):
            parts.append(ContentPart("text", text))
    return parts


def _user(content: object, place: str) -> list[Message]:
    results: list[Message] = []
    parts: list[ContentPart] = []
    for block, where in _blocks(content, place):
        if block.get("type") == "tool_result":
            call = _text(block, "tool_use_id", where)
            said = [
                part
                for item, inner in _blocks(block.get("content"), f"{where}.content")
                for part in _shown(item, inner)
            ]
            results.append(Message("tool", tuple(said), tool_call_id=call))
        else:
            parts += _shown(block, where)
    if parts or not results:
        return [*results, Message("user", tuple(parts))]
    return results


def _assistant(content: object, place: str) -> Message:
    thoughts: list[str] = []
    parts: list[ContentPart] = []
    calls: list[ToolCall] = []
    for block, where in _blocks(content, place):
        match block.get("type"):
            case "thinking":
                thoughts.append(_text(block, "thinking", where))
            case "redacted_thinking":
                pass  # only the provider who wrote it could read it
            case "tool_use":
                calls.append(_call(block, where))
            case "text":
                parts.append(ContentPart("text", _text(block, "text", where)))
            case "tool_reference":
                parts.append(ContentPart("text", _text(block, "tool_name", where)))
            case kind if not _is_hosted(kind):
                raise wrong(f"{where}.type", kind, "use text, thinking or tool_use")
    reasoning = "".join(thoughts) if thoughts else None
    return Message("assistant", tuple(parts), reasoning, tuple(calls))


def _call(block: Mapping[str, Any], where: str) -> ToolCall:
    given = block.get("input")
    arguments = {} if given is None else _object(given, f"{where}.input")
    return ToolCall(_text(block, "name", where), arguments, _text(block, "id", where))


def _is_hosted(kind: object) -> bool:
    if not isinstance(kind, str):
        return False
    return kind in _HOSTED or (kind.endswith("_result") and kind.startswith(_HOSTED_RESULTS))


def _shown(block: Mapping[str, Any], where: str) -> list[ContentPart]:
    """What a block shows to the model, in user messages and results of tools."""
    match block.get("type"):
        case "text":
            return [ContentPart("text", _text(block, "text", where))]
        case "image":
            return [_image(block, where)]
        case "document":
            return _document(block, where)
        case "search_result":
            return [ContentPart("text", _search_result(block, where))]
        case "tool_reference":
            return [ContentPart("text", _text(block, "tool_name", where))]
        case kind if _is_hosted(kind):
            return []
        case kind:
            raise wrong(f"{where}.type", kind, "use text, image, document or tool_result")


def _image(block: Mapping[str, Any], where: str) -> ContentPart:
    source = _object(block.get("source"), f"{where}.source")
    match source.get("type"):
        case "base64":
            kind = _text(source, "media_type", f"{where}.source")
            data = _text(source, "data", f"{where}.source")
            return ContentPart("image", source=f"data:{kind};base64,{data}", place=where)
        case "url":
            url = _text(source, "url", f"{where}.source")
            return ContentPart("image", source=url, place=where)
        case kind:
            raise wrong(f"{where}.source.type", kind, "send images as base64 or url")


def _document(block: Mapping[str, Any], where: str) -> list[ContentPart]:
    source = _object(block.get("source"), f"{where}.source")
    heads = [block[name] for name in ("title", "context") if isinstance(block.get(name), str)]
    head = [ContentPart("text", "".join(f"{line}\n\n" for line in heads))] if heads else []
    match source.get("type"):
        case "text":
            return [*head, ContentPart("text", _text(source, "data", f"{where}.source"))]
        case "content":
            inner = _blocks(source.get("content"), f"{where}.source.content")
            return [*head, *(part for item, place in inner for part in _shown(item, place))]
        case kind:
            shown = source.get("media_type") if kind == "base64" else kind
            raise wrong(
                f"{where}.source", shown, "only text documents can be read; extract their text"
            )


def _search_result(block: Mapping[str, Any], where: str) -> str:
    lines = [block[name] for name in ("title", "source") if isinstance(block.get(name), str)]
    inner = _blocks(block.get("content"), f"{where}.content")
    return "\n".join([*lines, *(_text(item, "text", place) for item, place in inner)])


def _blocks(content: object, place: str) -> list[tuple[Mapping[str, Any], str]]:
    """The blocks of a content with their places; a text is one block, none is no block."""
    if content is None:
        return []
    if isinstance(content, str):
        return [({"type": "text", "text": content}, place)] if content else []
    if not isinstance(content, list):
        raise wrong(place, content, "it must be text or a list of blocks")
    return [(_object(item, f"{place}.{i}"), f"{place}.{i}") for i, item in enumerate(content)]


def _text(fields: Mapping[str, Any], name: str, where: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise wrong(f"{where}.{name}", value, "it must be text")
    return value


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise wrong(where, value, "it must be an object")
    return value
