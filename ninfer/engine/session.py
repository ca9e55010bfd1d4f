"""Session: from the tokens of one running sequence to text pieces and the closing result."""

from collections.abc import Iterable, Iterator

from ninfer.frontend import OutputParser
from ninfer.request import FinishReason, GenerationEvent, GenerationResult, TextDelta, Usage
from ninfer.runtime import Progress
from ninfer.runtime.prefix_match import PrefixMatch


class Session:
    """The text side of one sequence. Feed it what the runtime reports until `result` is there.

    `at_limit` is what an output limit means here: the request's own, or the context's.
    """

    def __init__(self, parser: OutputParser, prompt_tokens: int, at_limit: FinishReason) -> None:
        self._parser = parser
        self._prompt_tokens = prompt_tokens
        self._at_limit = at_limit
        self._ids: list[int] = []
        self._seconds = [0.0, 0.0]  # until the first token, and after it
        self._match = PrefixMatch()
        self.result: GenerationResult | None = None

    def feed(self, progress: Progress) -> Iterator[GenerationEvent]:
        """The text that these tokens make certain, and the result when they are the last.

        A stop string can end the session in the middle of what came at once; later tokens count for
        nothing. Raises the error that ended the sequence.
        """
        if progress.error is not None:
            raise progress.error
        self._match = progress.sequence.match
        for token in progress.tokens:
            self._ids.append(token)
            yield from self._parser.feed((token,))
            if self._parser.stop_match is not None:
                yield from self._close(FinishReason.STOP_STRING)
                return
        if progress.finish is not None:
            yield from self._close(progress.finish)

    def spent(self, seconds: float) -> None:
        """Add time that the runtime worked on this sequence, alone or in company."""
        self._seconds[bool(self._ids)] += seconds

    def _close(self, reason: FinishReason) -> Iterator[GenerationEvent]:
        rest: Iterable[TextDelta] = self._parser.finish()
        yield from rest
        if self._parser.stop_match is not None:
            reason = FinishReason.STOP_STRING
        elif reason is FinishReason.OUTPUT_LIMIT:
            reason = self._at_limit
        self.result = GenerationResult(
            finish_reason=reason,
            usage=Usage(
                self._prompt_tokens,
                len(self._ids),
                self._parser.reasoning_tokens,
                self._match.length,
            ),
            token_ids=tuple(self._ids),
            prefill_seconds=self._seconds[0],
            decode_seconds=self._seconds[1],
            prefix_miss=self._match.miss,
        )
        yield self.result
