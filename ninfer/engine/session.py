"""Session: from the tokens of one running sequence to text, calls and the closing result."""

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Items
from dataclasses import replace

from ninfer.frontend import OutputParser
from ninfer.request import (
    FinishReason,
    GenerationEvent,
    GenerationResult,
    OutputEvent,
    TextDelta,
    TokenLogprob,
    ToolCall,
    ToolCallEnd,
    Usage,
)
from ninfer.runtime import Progress, Sequence


class Session:
    """The text side of one sequence. Feed it what the runtime reports until `result` is there.

    `at_limit` is what an output limit means here: the request's own, or the context's. `stop_ids`
    are those that the request itself named.
    """

    def __init__(
        self,
        parser: OutputParser,
        prompt_tokens: int,
        at_limit: FinishReason,
        stop_ids: Items[int] = (),
    ) -> None:
        self._parser = parser
        self._prompt_tokens = prompt_tokens
        self._at_limit = at_limit
        self._stop_ids = stop_ids
        self._ids: list[int] = []
        self._calls: list[ToolCall] = []
        self._logprobs: list[TokenLogprob] = []
        self._shown = 0  # of these
        self._seconds = [0.0, 0.0]  # until the first token, and after it
        self.result: GenerationResult | None = None

    def feed(self, progress: Progress) -> Iterator[GenerationEvent]:
        """What these tokens make certain, and the result when they are the last.

        A stop string can end the session in the middle of what came at once; later tokens count for
        nothing. Raises the error that ended the sequence.
        """
        if progress.error is not None:
            raise progress.error
        for index, token in enumerate(progress.tokens):
            self._ids.append(token)
            self._logprobs += progress.logprobs[index : index + 1]
            yield from self._noted(self._parser.feed((token,)))
            if self._parser.stop_match is not None:
                yield from self._close(FinishReason.STOP_STRING, progress.sequence)
                return
        if progress.finish is not None:
            yield from self._close(progress.finish, progress.sequence)

    def spent(self, seconds: float) -> None:
        """Add time that the runtime worked on this sequence, alone or in company."""
        self._seconds[bool(self._ids)] += seconds

    def usage(self, sequence: Sequence) -> Usage:
        """Token counts so far; the cached ones are known once the sequence has begun to run."""
        reasoning = self._parser.reasoning_tokens
        return Usage(self._prompt_tokens, len(self._ids), reasoning, sequence.match.length)

    def _close(self, reason: FinishReason, sequence: Sequence) -> Iterator[GenerationEvent]:
        cut = reason is not FinishReason.STOP_TOKEN
        yield from self._noted(self._parser.finish(cut=cut))
        if self._shown < len(self._logprobs):
            yield from self._noted([TextDelta(self._parser.channel, "")])
        if self._parser.stop_match is not None:
            reason = FinishReason.STOP_STRING
        elif reason is FinishReason.OUTPUT_LIMIT:
            reason = self._at_limit
        self.result = GenerationResult(
            finish_reason=reason,
            usage=self.usage(sequence),
            token_ids=tuple(self._ids),
            prefill_seconds=self._seconds[0],
            decode_seconds=self._seconds[1],
            tool_calls=tuple(self._calls),
            logprobs=tuple(self._logprobs),
            stop_reason=self._stop_reason(reason),
            prompt_logprobs=() if sequence.prompt_top is None else tuple(sequence.prompt_logprobs),
            prefix_miss=sequence.match.miss,
        )
        yield self.result

    def _stop_reason(self, reason: FinishReason) -> int | str | None:
        match reason:
            case FinishReason.STOP_STRING:
                assert self._parser.stop_match is not None
                return self._parser.stop_match.text
            case FinishReason.STOP_TOKEN:
                return self._ids[-1] if self._ids[-1] in self._stop_ids else None
            case FinishReason.LOOP_GUARD:
                return str(reason)
        return None

    def _noted(self, events: Iterable[OutputEvent]) -> Iterator[OutputEvent]:
        """The events, each piece of text with the log-probabilities since the one before."""
        for event in events:
            if isinstance(event, TextDelta) and self._shown < len(self._logprobs):
                event = replace(event, logprobs=tuple(self._logprobs[self._shown :]))
                self._shown = len(self._logprobs)
            elif isinstance(event, ToolCallEnd):
                self._calls.append(event.call)
            yield event
