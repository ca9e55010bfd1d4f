"""Tool calls in the XML form of the Qwen templates, read as they are generated.

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

Nothing in VALUE is escaped, so what ends it is a matter of rules, which stand at `ValueEnd`. Tags
that are missing or stand twice are forgiven where the meaning is plain.
"""

from collections.abc import Callable, Mapping
from typing import Final

from ninfer.frontend.tool_calls.arguments import OpenArguments
from ninfer.frontend.tool_calls.declared import ToolParameters
from ninfer.frontend.tool_calls.tags import Tag, TagKind, TagLexer, Token, is_closer_cut_short
from ninfer.frontend.tool_calls.value_end import ValueEnd
from ninfer.request import (
    OutputEvent,
    TextDelta,
    ToolCall,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)

_UNKNOWN: Final = ToolParameters(None)
# Behind a call they say nothing new.
_STRAYS: Final = (TagKind.CALL_END, TagKind.FUNCTION_END, TagKind.PARAMETER_END)


class QwenXmlParser:
    """`ToolCallParser` of the XML form. Linear in the text.

    A call begins with `<tool_call>`, white space and a function tag with a name, or with the
    function tag alone if its name is declared; a tag that has no `>` also needs a declared name.
    Tags that begin no call are content. White space around calls belongs to nothing. Text inside a
    call but outside its values is content. The call is complete at `</function>`, at
    `</tool_call>`, when the next call begins, or when the model ends its turn between two values.
    `enforced` says that a grammar let only well-formed calls through.
    """

    def __init__(
        self,
        declared: Mapping[str, ToolParameters],
        new_id: Callable[[], str],
        *,
        enforced: bool = False,
    ) -> None:
        self._declared = declared
        self._new_id = new_id
        self._enforced = enforced
        self._lexer = TagLexer()
        self._events: list[OutputEvent] = []
        self._opening: list[Token] = []  # `<tool_call>` and white space: a call may follow
        self._space: list[str] = []  # white space that is content unless a call follows
        self._behind_tag = False
        self._calls = 0
        self._name = ""
        self._id = ""
        self._arguments: OpenArguments | None = None
        self._end: ValueEnd | None = None

    def feed(self, text: str) -> list[OutputEvent]:
        """See `ToolCallParser.feed`."""
        for token in self._lexer.feed(text):
            self._take(token)
        return self._ready()

    def finish(self, *, cut: bool) -> list[OutputEvent]:
        """See `ToolCallParser.finish`. What was taken of a call that is cut off is not content."""
        tail = self._lexer.flush()
        if self._arguments is None:
            self._reject()
            self._show(tail)
            self._events += _text("".join(self._space))
            return self._ready()
        if cut or not is_closer_cut_short(tail):
            return self._ready()
        if self._end is not None:
            self._resolve(self._end.finish())
        if self._end is None:
            self._reject()
            self._close_call()
        return self._ready()

    def _ready(self) -> list[OutputEvent]:
        events, self._events = self._events, []
        return events

    def _take(self, token: Token) -> None:
        if self._end is not None:
            self._resolve(self._end.take(token))
        elif self._opening:
            self._open(token)
        elif isinstance(token, str):
            self._show(token)
        elif token.kind is TagKind.CALL:
            self._opening = [token]
        elif token.kind is TagKind.FUNCTION and token.name in self._declared:
            self._start_call(token)
        elif self._arguments is not None:
            self._inside(token)
        elif not (self._behind_tag and (token.kind in (*_STRAYS, TagKind.THOUGHT_END))):
            self._show(token.raw)

    def _open(self, token: Token) -> None:
        """What follows `<tool_call>`: perhaps the function tag of a call."""
        if isinstance(token, str) and token.isspace():
            self._opening.append(token)
        elif isinstance(token, Tag) and token.kind is TagKind.FUNCTION and self._names_call(token):
            self._opening = []
            self._start_call(token)
        else:
            self._reject()
            self._take(token)

    def _names_call(self, tag: Tag) -> bool:
        # An unknown name is passed on: the client tells the model, which then corrects itself.
        return bool(tag.name) and (tag.closed or tag.name in self._declared)

    def _reject(self) -> None:
        """No call follows: what was held is text."""
        tokens, self._opening = self._opening, []
        for token in tokens:
            self._show(token if isinstance(token, str) else token.raw)

    def _inside(self, tag: Tag) -> None:
        """A tag between the values of the open call."""
        assert self._arguments is not None
        if tag.kind is TagKind.PARAMETER:
            self._begin_value(tag)
        elif tag.kind in (TagKind.FUNCTION_END, TagKind.CALL_END):
            self._close_call()
        elif tag.kind is TagKind.FUNCTION:
            self._show(tag.raw)
        # A closer of a parameter that is closed already, or of the thought, says nothing.

    def _start_call(self, tag: Tag) -> None:
        self._close_call()
        self._leave_text()
        self._name = tag.name
        self._id = self._new_id()
        self._arguments = OpenArguments(self._declared.get(tag.name, _UNKNOWN))
        self._events.append(ToolCallStart(self._calls, self._id, self._name))

    def _close_call(self) -> None:
        if self._arguments is None:
            return
        self._leave_text()
        self._send(self._arguments.close())
        call = ToolCall(self._name, self._arguments.values, self._id)
        self._events.append(ToolCallEnd(self._calls, call))
        self._arguments = None
        self._calls += 1

    def _begin_value(self, tag: Tag) -> None:
        assert self._arguments is not None
        self._leave_text()
        self._send(self._arguments.begin(tag.name))
        self._end = ValueEnd(self._arguments, self._enforced)

    def _resolve(self, found: tuple[str, list[Token] | None]) -> None:
        """JSON of the open value, and the tokens behind it if it has ended."""
        fragment, behind = found
        self._send(fragment)
        if behind is not None:
            self._end = None
            for token in behind:
                self._take(token)

    def _send(self, fragment: str) -> None:
        if fragment:
            self._events.append(ToolCallArguments(self._calls, fragment))

    def _leave_text(self) -> None:
        self._space = []
        self._behind_tag = True

    def _show(self, text: str) -> None:
        """Text that is content, but for white space next to a call."""
        if self._behind_tag:
            text = text.lstrip()
        visible = text.rstrip()
        if visible:
            self._events += _text("".join(self._space) + visible)
            self._space = []
            self._behind_tag = False
        if len(text) > len(visible):
            self._space.append(text[len(visible) :])


def _text(text: str) -> list[OutputEvent]:
    return [TextDelta("content", text)] if text else []
