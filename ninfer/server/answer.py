"""Answer: the events of one generation put together, for replies that are sent whole."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ninfer.request import (
    FinishReason,
    GenerationEvent,
    GenerationResult,
    TextDelta,
    TokenLogprob,
    Usage,
)


@dataclass(slots=True)
class Answer:
    """What one generation gave so far; `result` comes last."""

    reasoning: list[str] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    result: GenerationResult | None = None

    def add(self, event: GenerationEvent) -> None:
        """Take in the next event; complete calls are those of the result."""
        if isinstance(event, TextDelta):
            (self.reasoning if event.channel == "reasoning" else self.content).append(event.text)
            self.logprobs += event.logprobs
        elif isinstance(event, GenerationResult):
            self.result = event

    @property
    def ended(self) -> GenerationResult:
        """The result, once it is there."""
        assert self.result is not None
        return self.result


def put_together(events: Iterable[tuple[int, GenerationEvent]], answers: list[Answer]) -> None:
    """Add events to the answers that their numbers name."""
    for index, event in events:
        answers[index].add(event)


def was_cut(result: GenerationResult) -> bool:
    """Whether a limit ended the answer before the model did."""
    return result.finish_reason in (
        FinishReason.OUTPUT_LIMIT,
        FinishReason.CONTEXT_CAPACITY,
        FinishReason.DEADLINE,
    )


def total(usages: Iterable[Usage], prompts: int = 1) -> Usage:
    """The usage of several answers; each of the `prompts` counts once, however many it got."""
    listed = list(usages)
    each = max(len(listed) // prompts, 1)
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in listed[::each]),
        completion_tokens=sum(usage.completion_tokens for usage in listed),
        reasoning_tokens=sum(usage.reasoning_tokens for usage in listed),
        cached_tokens=sum(usage.cached_tokens for usage in listed[::each]),
    )
