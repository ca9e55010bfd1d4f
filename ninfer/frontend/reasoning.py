"""Splitting generated text into reasoning and answer at the model's think tags."""

import re
from collections.abc import Collection
from typing import Final

from ninfer.frontend.tool_calls.tags import CALL_BEGUN, CALL_OPENING, CALL_TAG, begun, clean_name
from ninfer.request import TextDelta

OPEN_TAG: Final = "<think>"
CLOSE_TAG: Final = "</think>"
TURN_START: Final = "<|im_start|>"
TURN_END: Final = "<|im_end|>"

_CLOSE_BEGUN: Final = re.compile(begun(CLOSE_TAG))
_CLOSE_OR_CALL_BEGUN: Final = re.compile(f"{begun(CLOSE_TAG)}|{CALL_BEGUN}")


def starts_in_reasoning(prompt: str) -> bool:
    """Whether a rendered prompt ends inside an open thought.

    Only the last turn counts, and only if it is unfinished and opens with the thought: think tags
    that messages or an answer quote do not begin one.
    """
    _, marker, turn = prompt.rpartition(TURN_START)
    body = turn.partition("\n")[2] if marker else turn
    closed = CLOSE_TAG in body or TURN_END in body
    return body.lstrip().startswith(OPEN_TAG) and not closed


class ReasoningSplitter:
    """Gives each piece of streamed text its channel.

    The first closing tag ends the reasoning; white space behind it is dropped. So does the first
    call of one of `tools` (the names): `<tool_call>`, white space and a function tag with the name,
    all of which stays in the content. Tags that only speak of calls do not. Nothing opens reasoning
    again: later tags are content, and so are all tags when the prompt did not open a thought. An
    opening tag that repeats the prompt's is dropped once. A possible part of a tag is held back.
    Reasoning keeps its white space here, so that stop strings can match it (see ThoughtTrimmer).
    Content comes out in order, ready for a tool-call parser.
    """

    def __init__(self, in_reasoning: bool, tools: Collection[str] = ()) -> None:
        self.in_reasoning = in_reasoning
        self._tools = tools
        self._begun = _CLOSE_OR_CALL_BEGUN if tools else _CLOSE_BEGUN
        self._may_open = in_reasoning
        self._skip_space = False
        self._held = ""

    def feed(self, text: str) -> list[TextDelta]:
        """The pieces that are now certain."""
        if self.in_reasoning:
            return self._reason(self._held + text)
        return self._answer(text)

    @property
    def may_be_call(self) -> bool:
        """Whether `<tool_call>` is held back, because a call of a tool may follow it."""
        return self._held.startswith(CALL_TAG)

    def flush(self) -> list[TextDelta]:
        """What was held as a possible tag; the text has ended."""
        held, self._held = self._held, ""
        return _delta("reasoning", held)

    def _reason(self, text: str) -> list[TextDelta]:
        self._held = ""
        if self._may_open:
            if len(text) < len(OPEN_TAG) and OPEN_TAG.startswith(text):
                self._held = text
                return []
            self._may_open = False
            text = text.removeprefix(OPEN_TAG)
        place = text.find("<")
        while place >= 0:
            if text.startswith(CLOSE_TAG, place):
                self._skip_space = True
                return self._end(text[:place], text[place + len(CLOSE_TAG) :])
            if self._is_call(text, place):
                return self._end(text[:place], text[place:])
            if self._begun.fullmatch(text, place):
                self._held = text[place:]
                return _delta("reasoning", text[:place])
            place = text.find("<", place + 1)
        return _delta("reasoning", text)

    def _is_call(self, text: str, place: int) -> bool:
        match = CALL_OPENING.match(text, place) if self._tools else None
        return match is not None and clean_name(match[1]) in self._tools

    def _end(self, thought: str, answer: str) -> list[TextDelta]:
        self.in_reasoning = False
        return _delta("reasoning", thought) + self._answer(answer)

    def _answer(self, text: str) -> list[TextDelta]:
        if self._skip_space:
            text = text.lstrip()
            self._skip_space = not text
        return _delta("content", text)


class ThoughtTrimmer:
    """Holds white space of reasoning back until more reasoning follows.

    So the white space before the closing tag is never shown, and a thought of white space alone
    is none.
    """

    def __init__(self) -> None:
        self._held: list[str] = []
        self._any = False

    def feed(self, text: str) -> str:
        """The text up to its last visible character, with what was held before."""
        visible = text.rstrip()
        if not visible:
            self._held.append(text)
            return ""
        shown = "".join(self._held) + visible
        self._held = [text[len(visible) :]]
        self._any = True
        return shown

    def flush(self) -> str:
        """The held white space of a thought that was cut before its closing tag."""
        held = "".join(self._held) if self._any else ""
        self._held = []
        return held


def _delta(channel: str, text: str) -> list[TextDelta]:
    return [TextDelta("reasoning" if channel == "reasoning" else "content", text)] if text else []
