"""Tools that Anthropic defines and the client runs: their schemas, which requests leave out."""

from typing import Any, Final

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_RANGE: Final = {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2}
_POINT: Final = {**_RANGE, "description": "x and y in pixels"}


def _commands(*names: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(names)}


def _schema(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


_EDITS: Final = {
    "path": _TEXT,
    "file_text": _TEXT,
    "old_str": _TEXT,
    "new_str": _TEXT,
    "insert_line": _NUMBER,
    "insert_text": _TEXT,
}
_EDITOR: Final = _schema(
    ("command", "path"),
    command=_commands("view", "create", "str_replace", "insert"),
    **_EDITS,
    view_range=_RANGE,
)
_MEMORY: Final = _schema(
    ("command",),
    command=_commands("view", "create", "str_replace", "insert", "delete", "rename"),
    **_EDITS,
    view_range=_RANGE,
    old_path=_TEXT,
    new_path=_TEXT,
)
_COMPUTER: Final = _schema(
    ("action",),
    action=_commands(
        "screenshot",
        "left_click",
        "right_click",
        "middle_click",
        "double_click",
        "triple_click",
        "left_click_drag",
        "left_mouse_down",
        "left_mouse_up",
        "mouse_move",
        "cursor_position",
        "scroll",
        "type",
        "key",
        "hold_key",
        "wait",
        "zoom",
    ),
    coordinate=_POINT,
    start_coordinate=_POINT,
    text=_TEXT,
    scroll_direction=_commands("up", "down", "left", "right"),
    scroll_amount=_NUMBER,
    duration={"type": "number"},
    region={"type": "array", "items": _NUMBER, "minItems": 4, "maxItems": 4},
)
# Beginning of the type, whose rest is a date -> what the model is told, and the schema.
CLIENT_TOOLS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "bash_": (
        "Run a command in a shell that lasts from call to call; restart begins a new one.",
        _schema((), command=_TEXT, restart={"type": "boolean"}),
    ),
    "text_editor_": ("View, create and edit text files.", _EDITOR),
    "memory_": ("Keep files of notes below /memories from one conversation to the next.", _MEMORY),
    "computer_": ("Look at a screen and use its mouse and keyboard.", _COMPUTER),
}
