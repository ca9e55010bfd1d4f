"""Where the value of a parameter ends, when the value itself may hold tags of calls."""

from ninfer.frontend.tool_calls.arguments import OpenArguments
from ninfer.frontend.tool_calls.tags import Tag, TagKind, Token

# The JSON to send, and the tokens behind the value if it has ended.
Found = tuple[str, list[Token] | None]

_AFTER_VALUE = (TagKind.PARAMETER, TagKind.FUNCTION_END, TagKind.CALL_END)
_NEXT_CALL = (TagKind.CALL, TagKind.FUNCTION)


class ValueEnd:
    """Reads the open value of a call. White space between tags never matters.

    1. `</parameter>` ends it, if `<parameter=`, `</function>`, `</tool_call>` or the end of the
       turn follows. On a line of its own it also does before `<tool_call>`. Not on a line of its
       own, behind a value of several lines, it does not before `<parameter=` on the same line.
    2. Without `</parameter>`: `</function>` and `</tool_call>`, one or both, if the next call or
       the end of the turn follows; and `<parameter=KEY>` at the start of a line, if KEY is declared
       and was not given yet.
    3. A whole call in the value, from `<tool_call>` and a function tag to `</tool_call>`, is part
       of it. So a text about calls is kept, or, if such a call has no end, the outer one has none
       either: it never comes out shortened as if it were complete.

    All other tags are part of the value.

    Calls that a grammar `enforced` need no such rules: a value ends at the first `</parameter>`
    that is a whole line.
    """

    def __init__(self, arguments: OpenArguments, enforced: bool) -> None:
        self._arguments = arguments
        self._enforced = enforced
        self._waiting: list[Token] = []  # a tag that may end the value, and what stands behind it
        self._depth = 0

    def take(self, token: Token) -> Found:
        """The next token of the text."""
        sent: list[str] = []
        tokens = [token]
        while tokens:
            token = tokens.pop()
            if self._enforced:
                ended, again = self._match(token, sent)
            elif self._waiting:
                self._waiting.append(token)
                if isinstance(token, str) and token.isspace():
                    continue
                ended, again = self._decide(token, sent)
            else:
                ended, again = self._begin(token, sent)
            if ended:
                sent.append(self._arguments.end())
                assert not tokens, "only the last token can tell that the value has ended"
                return "".join(sent), again
            tokens += reversed(again)
        return "".join(sent), None

    def finish(self) -> Found:
        """The model ended its turn here: what waited for more to follow ends the value."""
        if not self._waiting or self._depth or self._kind() is TagKind.CALL:
            return "", None
        waiting, self._waiting = self._waiting, []
        return self._arguments.end(), waiting

    def _match(self, token: Token, sent: list[str]) -> tuple[bool, list[Token]]:
        """As `_begin`, for enforced calls."""
        value = self._arguments.value
        assert value is not None
        waiting, self._waiting = self._waiting, []
        if waiting and isinstance(token, str) and token.startswith("\n"):
            return True, [*waiting, token]
        self._keep(waiting, sent)
        # The line break after the opening tag does not make a line of what follows it.
        own_line = value.at_line_start and value.several_lines
        if isinstance(token, Tag) and token.kind is TagKind.PARAMETER_END and own_line:
            self._waiting = [token]
        else:
            self._keep([token], sent)
        return False, []

    def _kind(self) -> TagKind:
        first = self._waiting[0]
        assert isinstance(first, Tag)
        return first.kind

    def _begin(self, token: Token, sent: list[str]) -> tuple[bool, list[Token]]:
        """Whether the value has ended before the token; the tokens to be read again."""
        value = self._arguments.value
        assert value is not None
        if isinstance(token, str):
            self._keep([token], sent)
        elif token.kind is TagKind.CALL or (
            not self._depth
            and token.kind in (TagKind.PARAMETER_END, TagKind.FUNCTION_END, TagKind.CALL_END)
        ):
            self._waiting = [token]
        elif (
            token.kind is TagKind.PARAMETER
            and not self._depth
            and value.at_line_start
            and token.closed
            and self._arguments.may_begin(token.name)
        ):
            return True, [token]
        else:
            self._depth -= token.kind is TagKind.CALL_END and self._depth > 0
            self._keep([token], sent)
        return False, []

    def _decide(self, token: Token, sent: list[str]) -> tuple[bool, list[Token]]:
        """As `_begin`, for what follows a tag that was waiting."""
        kind = self._kind()
        follows = token.kind if isinstance(token, Tag) else None
        if kind is TagKind.CALL:
            return self._nested(token, sent)
        if kind is TagKind.PARAMETER_END:
            if follows is TagKind.PARAMETER_END:
                return False, []
            return self._closes(follows, sent)
        if follows in _NEXT_CALL:
            waiting, self._waiting = self._waiting, []
            return True, waiting
        tags = sum(isinstance(item, Tag) for item in self._waiting)
        if kind is TagKind.FUNCTION_END and follows is TagKind.CALL_END and tags == 2:
            return False, []
        return self._drop_first(sent)

    def _nested(self, token: Token, sent: list[str]) -> tuple[bool, list[Token]]:
        waiting, self._waiting = self._waiting, []
        if isinstance(token, Tag) and token.kind is TagKind.FUNCTION and token.closed:
            self._depth += 1
            self._keep(waiting, sent)
            return False, []
        self._keep(waiting[:-1], sent)
        return False, [token]

    def _closes(self, follows: TagKind | None, sent: list[str]) -> tuple[bool, list[Token]]:
        """One closer or several in a row, of which the first that may ends the value."""
        waiting, self._waiting = self._waiting, []
        value = self._arguments.value
        assert value is not None
        breaks = [n for n, item in enumerate(waiting) if isinstance(item, str) and "\n" in item]
        last_break = breaks[-1] if follows and breaks else 0
        for number, item in enumerate(waiting[:-1]):
            own_line = value.at_line_start
            if follows is TagKind.PARAMETER:
                ends = own_line or number < last_break or not value.several_lines
            else:
                ends = follows in _AFTER_VALUE or (follows is TagKind.CALL and own_line)
            if ends and isinstance(item, Tag):
                return True, waiting[number:]
            self._keep([item], sent)
        return False, [waiting[-1]]

    def _drop_first(self, sent: list[str]) -> tuple[bool, list[Token]]:
        """The waiting tag ended nothing; the tokens behind it may still."""
        waiting, self._waiting = self._waiting, []
        self._keep(waiting[:1], sent)
        return False, waiting[1:]

    def _keep(self, tokens: list[Token], sent: list[str]) -> None:
        for token in tokens:
            sent.append(self._arguments.add(token if isinstance(token, str) else token.raw))
