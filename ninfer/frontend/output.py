"""Generated token ids to text on two channels, with stop strings and nothing half-finished."""

from collections.abc import Iterable
from dataclasses import dataclass

from ninfer.frontend.detokenizer import Detokenizer
from ninfer.frontend.reasoning import ReasoningSplitter, ThoughtTrimmer
from ninfer.frontend.stop import StopMatcher
from ninfer.frontend.tokenizer import Tokenizer
from ninfer.request import Channel, StopRules, TextDelta


@dataclass(frozen=True, slots=True)
class StopMatch:
    """A stop string that ended the output: where it stood and how many ids led to its end."""

    channel: Channel
    text: str
    tokens: int


class OutputParser:
    """Text state of one sequence.

    Feeding ids one by one, all at once or in any groups gives the same joined text on each
    channel, the same stop match and the same counts. After a stop match all further ids are
    ignored. Ids in `hidden_ids` (those that end a turn) show no text. With `raw` there is no
    split: everything is content, tags included, and only content stop strings are looked for.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        starts_in_reasoning: bool,
        stop: StopRules,
        hidden_ids: Iterable[int] = (),
        raw: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._hidden = frozenset(hidden_ids) | frozenset(stop.token_ids)
        self._detokenizer = Detokenizer()
        self._splitter = ReasoningSplitter(starts_in_reasoning and not raw)
        self._stops: dict[Channel, StopMatcher] = {
            "reasoning": StopMatcher(stop.reasoning),
            "content": StopMatcher(stop.content),
        }
        self._trimmer = ThoughtTrimmer()
        self._channel: Channel = "reasoning" if self._splitter.in_reasoning else "content"
        self.tokens = 0
        self.reasoning_tokens = 0
        self.stop_match: StopMatch | None = None

    def feed(self, token_ids: Iterable[int]) -> list[TextDelta]:
        """The text that these ids make certain, neighbouring pieces of a channel joined.

        `tokens` counts the ids up to and with a stop match, `reasoning_tokens` those of them that
        came while a thought was open, its closing tag included. Raises GenerationError for an id
        outside the vocabulary.
        """
        deltas: list[TextDelta] = []
        for token_id in token_ids:
            if self.stopped:
                break
            self.tokens += 1
            self.reasoning_tokens += self._splitter.in_reasoning
            if token_id not in self._hidden:
                text = self._detokenizer.feed(self._tokenizer.token_bytes(token_id))
                deltas += self._route(self._splitter.feed(text))
        return _joined(deltas)

    @property
    def channel(self) -> Channel:
        """Where the next text would be shown."""
        return self._channel

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found."""
        return self.stop_match is not None

    def finish(self) -> list[TextDelta]:
        """What was held back, for the end of the output. A stop string may still be found."""
        deltas: list[TextDelta] = []
        if not self.stopped:
            deltas += self._route(self._splitter.feed(self._detokenizer.flush()))
        if not self.stopped:
            deltas += self._route(self._splitter.flush())
        if not self.stopped:
            deltas += self._show(self._channel, self._stops[self._channel].flush())
        if self._channel == "reasoning":
            deltas += _delta("reasoning", self._trimmer.flush())
        return _joined(deltas)

    def _route(self, pieces: list[TextDelta]) -> list[TextDelta]:
        """Pieces of the splitter through the stop strings of their channel."""
        deltas: list[TextDelta] = []
        for piece in pieces:
            if piece.channel != self._channel:
                deltas += self._close_thought()
            matcher = self._stops[piece.channel]
            deltas += self._show(piece.channel, matcher.feed(piece.text))
            if matcher.matched is not None:
                self.stop_match = StopMatch(piece.channel, matcher.matched, self.tokens)
                return deltas
        if self._channel == "reasoning" and not self._splitter.in_reasoning:
            deltas += self._close_thought()
        return deltas

    def _close_thought(self) -> list[TextDelta]:
        """What the thought's stop strings held back is certain now; its last white space goes."""
        deltas = self._show("reasoning", self._stops["reasoning"].flush())
        self._channel = "content"
        return deltas

    def _show(self, channel: Channel, text: str) -> list[TextDelta]:
        return _delta(channel, self._trimmer.feed(text) if channel == "reasoning" else text)


def _delta(channel: Channel, text: str) -> list[TextDelta]:
    return [TextDelta(channel, text)] if text else []


def _joined(deltas: list[TextDelta]) -> list[TextDelta]:
    joined: list[TextDelta] = []
    for delta in deltas:
        if joined and joined[-1].channel == delta.channel:
            joined[-1] = TextDelta(delta.channel, joined[-1].text + delta.text)
        else:
            joined.append(delta)
    return joined
