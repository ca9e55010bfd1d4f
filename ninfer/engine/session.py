"""Session: from the tokens of one running sequence to text, calls and the closing result."""

from collections.abc import Iterable, Iterator

from ninfer.frontend import OutputParser
from ninfer.request import (
    FinishReason,
    GenerationEvent,
    GenerationResult,
    OutputEvent,
    ToolCall,
    ToolCallEnd,
    Usage,
)
from ninfer.runtime import Progress


class Session:
    """The text side of one sequence. Feed it what the runtime reports until `result` is there.

    `at_limit` is what an output limit means here: the request's own, or the context's.
    """

    def __init__(self, parser: OutputParser, prompt_tokens: int, at_limit: FinishReason) -> None:
        self._parser = parser
        self._prompt_tokens = prompt_tokens
        self._at_limit = at_limit
        self._ids: list[int] = []
        self._calls: list[ToolCall] = []
        self._seconds = [0.0, 0.0]  # until the first token, and after it
        self.result: GenerationResult | None = None

    def feed(self, progress: Progress) -> Iterator[GenerationEvent]:
        """What these tokens make certain, and the result when they are the last.

        A stop string can end the session in the middle of what came at once; later tokens count for
        nothing. Raises the error that ended the sequence.
        """
        if progress.error is not None:
            raise progress.error
        for token in progress.tokens:
            self._ids.append(token)
            yield from self._noted(self._parser.feed((token,)))
            if self._parser.stop_match is not None:
                yield from self._close(FinishReason.STOP_STRING)
                return
        if progress.finish is not None:
            yield from self._close(progress.finish)

    def spent(self, seconds: float) -> None:
        """Add time that the runtime worked on this sequence, alone or in company."""
        self._seconds[bool(self._ids)] += seconds

    def _close(self, reason: FinishReason) -> Iterator[GenerationEvent]:
        yield from self._noted(self._parser.finish(cut=reason is not FinishReason.STOP_TOKEN))
        if self._parser.stop_match is not None:
            reason = FinishReason.STOP_STRING
        elif reason is FinishReason.OUTPUT_LIMIT:
            reason = self._at_limit
        self.result = GenerationResult(
            finish_reason=reason,
            usage=Usage(self._prompt_tokens, len(self._ids), self._parser.reasoning_tokens),
            token_ids=tuple(self._ids),
            prefill_seconds=self._seconds[0],
            decode_seconds=self._seconds[1],
            tool_calls=tuple(self._calls),
        )
        yield self.result

    def _noted(self, events: Iterable[OutputEvent]) -> Iterator[OutputEvent]:
        for event in events:
            if isinstance(event, ToolCallEnd):
                self._calls.append(event.call)
            yield event
