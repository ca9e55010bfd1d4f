"""Splitting generated text into reasoning and answer at the model's think tags."""

from typing import Final

from ninfer.request import TextDelta

OPEN_TAG: Final = "<think>"
CLOSE_TAG: Final = "</think>"
TURN_START: Final = "<|im_start|>"
TURN_END: Final = "<|im_end|>"


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

    The first closing tag ends the reasoning; white space behind it is dropped. Nothing opens it
    again: later tags are content, and so are all tags when the prompt did not open a thought. An
    opening tag that repeats the prompt's is dropped once. A possible part of a tag is held back.
    Reasoning keeps its white space here, so that stop strings can match it (see ThoughtTrimmer).
    Content comes out in order, ready for a tool-call parser.
    """

    def __init__(self, in_reasoning: bool) -> None:
        self.in_reasoning = in_reasoning
        self._may_open = in_reasoning
        self._skip_space = False
        self._held = ""

    def feed(self, text: str) -> list[TextDelta]:
        """The pieces that are now certain."""
        if self.in_reasoning:
            return self._reason(self._held + text)
        return self._answer(text)

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
        thought, tag, answer = text.partition(CLOSE_TAG)
        if tag:
            self.in_reasoning = False
            self._skip_space = True
            return _delta("reasoning", thought) + self._answer(answer)
        cut = len(text) - _overlap(text, CLOSE_TAG)
        self._held = text[cut:]
        return _delta("reasoning", text[:cut])

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


def _overlap(text: str, tag: str) -> int:
    """Length of the longest end of `text` that begins `tag`."""
    for length in range(min(len(text), len(tag) - 1), 0, -1):
        if tag.startswith(text[-length:]):
            return length
    return 0
