"""What comes of an answer while it is written, and the whole of it."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ReasoningText:
    """A piece of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class AnswerText:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A complete call. `arguments` is JSON text as the server wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Token counts of one answer; `cached` and `reasoning` are parts of the other two."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class EndDetails:
    """What only some servers tell of an answer's end; None and () are untold.

    `stop` is what the server names beside its reason. Seconds are the engine's own.
    """

    stop: str | int | None = None
    token_ids: tuple[int, ...] = ()
    prefill_seconds: float | None = None
    decode_seconds: float | None = None
    drafted: int | None = None
    accepted: int | None = None


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """The answer is over. `usage` is None when the server does not count."""

    reason: str
    usage: TokenUsage | None = None
    details: EndDetails = field(default=EndDetails(), compare=False)


ChatEvent = ReasoningText | AnswerText | FunctionCall | AnswerEnd


@dataclass(slots=True)
class Answer:
    """An answer as far as it has come."""

    reasoning: str = ""
    text: str = ""
    calls: list[FunctionCall] = field(default_factory=list)
    end: AnswerEnd | None = None

    def add(self, event: ChatEvent) -> None:
        """Take in one event."""
        match event:
            case ReasoningText(text):
                self.reasoning += text
            case AnswerText(text):
                self.text += text
            case FunctionCall():
                self.calls.append(event)
            case AnswerEnd():
                self.end = event

    def message(self) -> dict[str, Any]:
        """The turn as a message of the protocol, with the thinking that led to it."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.calls
            ]
        return message
