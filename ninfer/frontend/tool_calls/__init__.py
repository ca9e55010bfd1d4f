"""Tool calls in generated text: found, typed and streamed."""

from ninfer.frontend.tool_calls.declared import declared_tools
from ninfer.frontend.tool_calls.parser import ToolCallParser, new_call_id, new_tool_call_parser
from ninfer.frontend.tool_calls.tags import CALL_BEGUN, CALL_OPENING, clean_name

__all__ = [
    "CALL_BEGUN",
    "CALL_OPENING",
    "ToolCallParser",
    "clean_name",
    "declared_tools",
    "new_call_id",
    "new_tool_call_parser",
]
