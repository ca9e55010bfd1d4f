"""Tool calls in generated text: found, typed and streamed."""

from ninfer.frontend.tool_calls.declared import declared_tools
from ninfer.frontend.tool_calls.parser import ToolCallParser, new_tool_call_parser

__all__ = ["ToolCallParser", "declared_tools", "new_tool_call_parser"]
