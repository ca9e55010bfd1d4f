"""What the OpenAPI page says of messages, items and tools, whose checks are in translations.

Bodies are not validated by these: a translation takes more forms than these, and its errors name
the place.
"""

from typing import Annotated, Any, Final

from pydantic import WithJsonSchema

_TEXT: Final = {"type": "string"}
_OBJECT: Final = {"type": "object"}


def _one(kind: str, **members: Any) -> dict[str, Any]:
    """An object whose `type` is `kind`; all members are required."""
    properties = {"type": {"const": kind}, **members}
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(*items: dict[str, Any], **bounds: int) -> dict[str, Any]:
    item = items[0] if len(items) == 1 else {"anyOf": list(items)}
    return {"type": "array", "items": item, **bounds}


def _message(roles: tuple[str, ...], content: dict[str, Any], **members: Any) -> dict[str, Any]:
    properties = {"role": {"enum": list(roles)}, "content": content, **members}
    return {"type": "object", "properties": properties, "required": ["role", "content"]}


_URL: Final = _one("image_url", image_url={"type": "object", "properties": {"url": _TEXT}})
_CALL: Final = {
    "type": "object",
    "properties": {
        "id": _TEXT,
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "properties": {"name": _TEXT, "arguments": _TEXT},
            "required": ["name"],
        },
    },
    "required": ["function"],
}
_CHAT: Final = (
    _message(
        ("system", "developer", "user"),
        {"anyOf": [_TEXT, _list(_one("text", text=_TEXT), _URL)]},
    ),
    _message(
        ("assistant",),
        {"anyOf": [_TEXT, {"type": "null"}, _list(_one("text", text=_TEXT))]},
        reasoning_content={"type": ["string", "null"]},
        tool_calls=_list(_CALL),
    ),
    _message(("tool",), {"anyOf": [_TEXT, _list(_one("text", text=_TEXT))]}, tool_call_id=_TEXT),
)
_FUNCTION: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"},
        "description": _TEXT,
        "parameters": _OBJECT,
        "strict": {"type": "boolean"},
    },
    "required": ["name"],
}
_BLOCKS: Final = _list(
    _one("text", text=_TEXT),
    _one("thinking", thinking=_TEXT, signature=_TEXT),
    _one("tool_use", id=_TEXT, name=_TEXT, input=_OBJECT),
    _one("tool_result", tool_use_id=_TEXT, content=_TEXT),
    _one("image", source=_OBJECT),
)
_ITEMS: Final = _list(
    _message(
        ("system", "developer", "user", "assistant"),
        {"anyOf": [_TEXT, _list(_one("input_text", text=_TEXT))]},
    ),
    _one("reasoning", summary=_list(_one("summary_text", text=_TEXT))),
    _one("function_call", call_id=_TEXT, name=_TEXT, arguments=_TEXT),
    _one("function_call_output", call_id=_TEXT, output=_TEXT),
)

ChatMessages = Annotated[list[Any], WithJsonSchema(_list(*_CHAT, minItems=1))]
ChatTools = Annotated[list[Any], WithJsonSchema(_list(_one("function", function=_FUNCTION)))]
AnthropicMessages = Annotated[
    list[Any],
    WithJsonSchema(_list(_message(("user", "assistant"), {"anyOf": [_TEXT, _BLOCKS]}), minItems=1)),
]
AnthropicTools = Annotated[
    list[Any],
    WithJsonSchema(
        _list(
            {
                "type": "object",
                "properties": {
                    "name": _FUNCTION["properties"]["name"],
                    "description": _TEXT,
                    "input_schema": _OBJECT,
                },
                "required": ["name", "input_schema"],
            }
        )
    ),
]
Items = Annotated[list[Any], WithJsonSchema(_ITEMS)]
ItemTools = Annotated[
    list[Any],
    WithJsonSchema(_list(_one("function", **_FUNCTION["properties"]))),
]
