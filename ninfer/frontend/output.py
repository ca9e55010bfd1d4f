"""Generated token ids to text on two channels and tool calls, with nothing half-finished."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ninfer.frontend.detokenizer import Detokenizer
from ninfer.frontend.reasoning import ReasoningSplitter, ThoughtTrimmer
from ninfer.frontend.stop import StopMatcher
from ninfer.frontend.tokenizer import Tokenizer
from ninfer.frontend.tool_calls import declared_tools, new_tool_call_parser
from ninfer.request import (
    Channel,
    OutputEvent,
    StopRules,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
)


@dataclass(frozen=True, slots=True)
class StopMatch:
    """A stop string that ended the output: where it stood and how many ids led to its end."""

    channel: Channel
    text: str
    tokens: int


class OutputParser:
    """Text state of one sequence.

    Feeding ids one by one, all at once or in any groups gives the same joined text on each
    channel, the same calls, the same stop match and the same counts. After a stop match all further
    ids are ignored. Ids in `hidden_ids` (those that end a turn) show no text. With `raw` there is
    no split: everything is content, tags included, and only content stop strings are looked for.

    Calls are looked for if the request has `tools`. Their text is not content, so no stop string
    matches in it or across it. `enforced_calls` says that the answer follows a `ToolCallSpec`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        starts_in_reasoning: bool,
        stop: StopRules,
        hidden_ids: Iterable[int] = (),
        raw: bool = False,
        tools: Sequence[Mapping[str, Any]] = (),
        enforced_calls: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._hidden = frozenset(hidden_ids) | frozenset(stop.token_ids)
        self._detokenizer = Detokenizer()
        tools = () if raw else tools
        self._splitter = ReasoningSplitter(starts_in_reasoning and not raw, declared_tools(tools))
        self._calls = new_tool_call_parser(tools, enforced=enforced_calls)
        self._stops: dict[Channel, StopMatcher] = {
            "reasoning": StopMatcher(stop.reasoning),
            "content": StopMatcher(stop.content),
        }
        self._trimmer = ThoughtTrimmer()
        self._channel: Channel = "reasoning" if self._splitter.in_reasoning else "content"
        self.tokens = 0
        self.reasoning_tokens = 0
        self.stop_match: StopMatch | None = None

    def feed(self, token_ids: Iterable[int]) -> list[OutputEvent]:
        """What these ids make certain, neighbouring pieces of a channel or of arguments joined.

        `tokens` counts the ids up to and with a stop match, `reasoning_tokens` those of them that
        came while a thought was open, with the tag or the beginning of a call that closes it.
        Raises GenerationError for an id outside the vocabulary.
        """
        events: list[OutputEvent] = []
        for token_id in token_ids:
            if self.stopped:
                break
            self.tokens += 1
            self.reasoning_tokens += self._splitter.in_reasoning
            if token_id not in self._hidden:
                text = self._detokenizer.feed(self._tokenizer.token_bytes(token_id))
                events += self._route(self._splitter.feed(text))
        return _joined(events)

    @property
    def channel(self) -> Channel:
        """Where the next text would be shown."""
        return self._channel

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found."""
        return self.stop_match is not None

    def finish(self, *, cut: bool = False) -> list[OutputEvent]:
        """What was held back, for the end of the output. A stop string may still be found.

        `cut` says that the model did not end its turn itself: a call that is open then stays
        incomplete, where otherwise closing tags at its end may be missing.
        """
        events: list[OutputEvent] = []
        if not self.stopped:
            events += self._route(self._splitter.feed(self._detokenizer.flush()))
        if not self.stopped:
            events += self._route(self._splitter.flush())
        if not self.stopped and self._calls:
            events += self._answer(self._calls.finish(cut=cut))
        if not self.stopped:
            events += self._show(self._channel, self._stops[self._channel].flush())
        if self._channel == "reasoning":
            events += _delta("reasoning", self._trimmer.flush())
        return _joined(events)

    def _route(self, pieces: list[TextDelta]) -> list[OutputEvent]:
        """Pieces of the splitter to events, through the stop strings of their channel."""
        events: list[OutputEvent] = []
        for piece in pieces:
            if piece.channel != self._channel:
                events += self._close_thought()
            if piece.channel == "content" and self._calls:
                events += self._answer(self._calls.feed(piece.text))
            else:
                events += self._until_stop(piece)
            if self.stopped:
                return events
        if self._channel == "reasoning" and not self._splitter.in_reasoning:
            events += self._close_thought()
        return events

    def _answer(self, found: list[OutputEvent]) -> list[OutputEvent]:
        """Content and calls, up to a stop string in the content."""
        events: list[OutputEvent] = []
        for event in found:
            if isinstance(event, TextDelta):
                events += self._until_stop(event)
                if self.stopped:
                    break
                continue
            if isinstance(event, ToolCallStart):
                events += _delta("content", self._stops["content"].flush())
            events.append(event)
        return events

    def _until_stop(self, piece: TextDelta) -> list[OutputEvent]:
        matcher = self._stops[piece.channel]
        events = self._show(piece.channel, matcher.feed(piece.text))
        if matcher.matched is not None:
            self.stop_match = StopMatch(piece.channel, matcher.matched, self.tokens)
        return events

    def _close_thought(self) -> list[OutputEvent]:
        """What the thought's stop strings held back is certain now; its last white space goes."""
        events = self._show("reasoning", self._stops["reasoning"].flush())
        self._channel = "content"
        return events

    def _show(self, channel: Channel, text: str) -> list[OutputEvent]:
        return _delta(channel, self._trimmer.feed(text) if channel == "reasoning" else text)


def _delta(channel: Channel, text: str) -> list[OutputEvent]:
    return [TextDelta(channel, text)] if text else []


def _joined(events: list[OutputEvent]) -> list[OutputEvent]:
    """Neighbouring pieces of a channel, or of the arguments of a call, as one."""
    joined: list[OutputEvent] = []
    for _, group in groupby(events, _stream):
        first, *more = group
        if more and isinstance(first, TextDelta):
            first = TextDelta(first.channel, "".join(map(_piece, (first, *more))))
        elif more and isinstance(first, ToolCallArguments):
            first = ToolCallArguments(first.index, "".join(map(_piece, (first, *more))))
        joined.append(first)
    return joined


def _stream(event: OutputEvent) -> object:
    """What neighbouring events must share to be one text; nothing but themselves for others."""
    if isinstance(event, TextDelta):
        return event.channel
    return event.index if isinstance(event, ToolCallArguments) else (id(event),)


def _piece(event: OutputEvent) -> str:
    if isinstance(event, TextDelta):
        return event.text
    return event.fragment if isinstance(event, ToolCallArguments) else ""
