"""The arguments of one call while they are generated: values, and JSON fragments to send."""

from typing import Any, Final

from ninfer.frontend.tool_calls.declared import ToolParameters
from ninfer.frontend.tool_calls.values import json_fragment, typed_value

_STRING: Final = frozenset({"string"})


class OpenValue:
    """The text of one parameter up to where its end is known.

    One line break after the opening tag and one before the closer do not belong to the value;
    everything else does. What can only be a string comes out while it grows.
    """

    def __init__(self, types: frozenset[str]) -> None:
        self._types = types
        self._streams = types == _STRING
        self._pieces: list[str] = []
        self._empty = True
        self._break = ""  # a line break that may turn out to be the last
        self.at_line_start = True
        self.several_lines = False

    def add(self, text: str) -> str:
        """Take text; returns the JSON that is now certain.

        `several_lines` says whether a line break stands in the value other than the one after the
        opening tag, `at_line_start` whether the text so far ends with one or is empty.
        """
        if not text:
            return ""
        self.several_lines |= "\n" in (text[1:] if self._empty else text)
        self.at_line_start = text.endswith("\n")
        if self._empty:
            self._empty = False
            text = text.removeprefix("\n")
        else:
            text, self._break = self._break + text, ""
        if text.endswith("\n"):
            text, self._break = text[:-1], "\n"
        self._pieces.append(text)
        return json_fragment(text)[1:-1] if self._streams else ""

    def open(self) -> str:
        """JSON that can be sent before any text is there."""
        return '"' if self._streams else ""

    def close(self) -> tuple[Any, str]:
        """The value, and the JSON that is left to send."""
        text = "".join(self._pieces)
        if self._streams:
            return text, '"'
        value = typed_value(text, self._types)
        return value, json_fragment(value)


class OpenArguments:
    """Arguments by name in generated order. Of a parameter that is given twice the first counts."""

    def __init__(self, parameters: ToolParameters) -> None:
        self._parameters = parameters
        self._key: str | None = None  # None while a repeated parameter is read
        self.values: dict[str, Any] = {}
        self.value: OpenValue | None = None

    def may_begin(self, key: str) -> bool:
        """Whether the key is declared and not given yet, the open one included."""
        return key not in self.values and key != self._key and self._parameters.declares(key)

    def begin(self, key: str) -> str:
        """Open a parameter; returns JSON to send."""
        self.value = OpenValue(self._parameters.types(key))
        if key in self.values:
            self._key = None
            return ""
        self._key = key
        lead = "," if self.values else "{"
        return f"{lead}{json_fragment(key)}:{self.value.open()}"

    def add(self, text: str) -> str:
        """More text of the open parameter; returns JSON to send."""
        assert self.value is not None
        fragment = self.value.add(text)
        return "" if self._key is None else fragment

    def end(self) -> str:
        """Close the open parameter; returns JSON to send."""
        assert self.value is not None
        value, fragment = self.value.close()
        self.value = None
        if self._key is None:
            return ""
        self.values[self._key] = value
        self._key = None
        return fragment

    def close(self) -> str:
        """The JSON that ends the object."""
        return "}" if self.values else "{}"
