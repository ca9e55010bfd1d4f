"""What a model gave for one item, as graders see it and as result files keep it."""

from dataclasses import dataclass

from ninfer.request import FinishReason, ToolCall


@dataclass(frozen=True, slots=True)
class Answer:
    """One finished generation; `content` is without thinking and without tool calls.

    `seconds` is the time from the question to the end, in whatever company it was answered.
    """

    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    prompt_tokens: int
    reasoning_tokens: int
    token_ids: tuple[int, ...]
    seconds: float

    @property
    def is_natural(self) -> bool:
        """Whether the model itself ended the turn."""
        return self.finish_reason is FinishReason.STOP_TOKEN
