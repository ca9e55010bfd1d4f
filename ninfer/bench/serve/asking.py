"""One request of a load over HTTP: the times of all that came, and the response to be judged."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ninfer.audit import Origin, StoredResponse, Timings, TokenCounts
from ninfer.bench.serve.load import Arrival, Texts, sample_text
from ninfer.bench.serve.options import ServeLoadOptions
from ninfer.client import (
    Answer,
    AnswerEnd,
    AnswerText,
    ChatServer,
    EndDetails,
    FunctionCall,
    ReasoningText,
    TokenUsage,
)
from ninfer.errors import ServerError

Clock = Callable[[], float]
# Words of the two questions that tell how many tokens a word is.
_SAMPLES: Final = (16, 80)


@dataclass(frozen=True, slots=True)
class Served:
    """What became of one request; times are seconds from the start of the load.

    `due` is when it should have been sent, which is what waits count from. `pieces` are the times
    at which text came; a piece may hold several tokens. `tokens` is None where no one counted.
    """

    arrival: Arrival
    due: float
    sent: float
    ended: float
    pieces: tuple[float, ...]
    tokens: int | None
    response: StoredResponse = field(repr=False)

    @property
    def ttft(self) -> float | None:
        """Seconds from when it was due to its first text; None when none came."""
        return self.pieces[0] - self.due if self.pieces else None

    @property
    def tpot(self) -> float | None:
        """Seconds a token from the first text to the last; None for fewer than two tokens.

        None as well for a stream that came in one piece, whose times say nothing.
        """
        if self.tokens is None or self.tokens < 2 or len(self.pieces) < 2:
            return None
        return (self.pieces[-1] - self.pieces[0]) / (self.tokens - 1)

    @property
    def gaps(self) -> tuple[float, ...]:
        """Seconds between pieces of text."""
        return tuple(b - a for a, b in zip(self.pieces, self.pieces[1:], strict=False))


class Asker:
    """Asks one model of a server; may be called from many threads, each on its own connection."""

    def __init__(
        self,
        server: ChatServer,
        model: str,
        texts: Texts,
        options: ServeLoadOptions,
        drawing: Mapping[str, float] | None = None,
    ) -> None:
        """`drawing` are further members of each request that say how tokens are drawn."""
        self._server, self._model = server, model
        self._texts, self._options = texts, options
        self._drawing = drawing or {}
        self._origin = Origin(server.root, model)

    def ask(self, arrival: Arrival, due: float, since_start: Clock) -> Served:
        """Send it now and read it to its end; a failure is in the response's `error`."""
        prompt = self._texts.prompt(arrival)
        body = {**request_body(self._model, prompt, arrival, self._options), **self._drawing}
        answer, details, pieces, error = Answer(), EndDetails(), [], None
        sent = since_start()
        try:
            with closing(self._server.stream(body)) as events:
                for event in events:
                    if isinstance(event, ReasoningText | AnswerText | FunctionCall):
                        pieces.append(since_start())
                    elif isinstance(event, AnswerEnd):
                        details = event.details
                    answer.add(event)
        except ServerError as failure:
            error = str(failure)
        ended = since_start()
        response = self._response(arrival, body, answer, details, error)
        first = pieces[0] - due if pieces else None
        times = Timings(ended - due, first, details.prefill_seconds, details.decode_seconds)
        response = replace(response, timings=times)
        tokens = response.usage.completion or len(details.token_ids) or None
        return Served(arrival, due, sent, ended, tuple(pieces), tokens, response)

    def _response(
        self,
        arrival: Arrival,
        body: Mapping[str, Any],
        answer: Answer,
        details: EndDetails,
        error: str | None,
    ) -> StoredResponse:
        return StoredResponse(
            fixture="load",
            case=str(arrival.number),
            text=answer.text,
            finish_reason="error" if answer.end is None else answer.end.reason,
            category="load",
            mode="server",
            seed=arrival.seed,
            request=body,
            reasoning=answer.reasoning,
            stop=details.stop,
            error=error,
            token_ids=details.token_ids or None,
            usage=_counts(answer.end.usage if answer.end else None),
            origin=self._origin,
        )


def request_body(
    model: str, prompt: str, arrival: Arrival, options: ServeLoadOptions
) -> dict[str, Any]:
    """The chat completion that is asked for."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": arrival.output_tokens,
        "seed": arrival.seed,
    }
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.extensions:
        body["return_token_ids"] = True
        body["chat_template_kwargs"] = {"enable_thinking": False}
    return body


def measured_texts(server: ChatServer, model: str, options: ServeLoadOptions) -> Texts:
    """Texts in the tokens of the server, by two short questions, which warm it up as well.

    A server that does not count is taken for one with a token a word. Raises ServerError.
    """
    counts = [_prompt_tokens(server, model, options, words) for words in _SAMPLES]
    first, second = counts
    if first is None or second is None or second <= first:
        return Texts(options)
    a_word = (second - first) / (_SAMPLES[1] - _SAMPLES[0])
    return Texts(options, a_word, max(first - a_word * _SAMPLES[0], 0.0))


def _prompt_tokens(
    server: ChatServer, model: str, options: ServeLoadOptions, words: int
) -> int | None:
    arrival = Arrival(-1, None, words, 1, 0, options.seed)
    body = request_body(model, sample_text(words), arrival, options)
    usage: TokenUsage | None = None
    with closing(server.stream(body)) as events:
        for event in events:
            if isinstance(event, AnswerEnd):
                usage = event.usage
    return usage.prompt if usage and usage.prompt else None


def _counts(usage: TokenUsage | None) -> TokenCounts:
    if usage is None:
        return TokenCounts()
    return TokenCounts(usage.prompt, usage.completion, usage.reasoning, usage.cached)


def stopwatch(clock: Clock = time.perf_counter) -> Clock:
    """Seconds since now."""
    start = clock()
    return lambda: clock() - start


def responses_of(served: Sequence[Served]) -> list[StoredResponse]:
    """The responses in the order of the requests."""
    return [one.response for one in sorted(served, key=lambda one: one.arrival.number)]
