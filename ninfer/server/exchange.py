"""Exchange: one request from its admission to its end, and everything that it holds meanwhile."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import Final, Protocol

from ninfer.audit.live import LiveVerdict, live_verdict
from ninfer.engine import Generations
from ninfer.errors import NInferError, UnavailableError
from ninfer.request import (
    FinishReason,
    GenerationEvent,
    GenerationResult,
    JsonObjectSpec,
    PreparedPrompt,
    TextDelta,
    ToolCallArguments,
    Usage,
)
from ninfer.server.answer import total
from ninfer.server.ask import Ask

Numbered = tuple[int, GenerationEvent]
# Takes a prompt, and the thought, text and result of an answer to it.
Keep = Callable[[PreparedPrompt, str, str, GenerationResult], None]


class Record(Protocol):
    """Who hears how an exchange goes: metrics and logs."""

    def first(self, exchange: "Exchange") -> None:
        """The first event has come."""

    def done(self, exchange: "Exchange") -> None:
        """All answers are whole."""

    def failed(self, exchange: "Exchange", error: BaseException | None) -> None:
        """It has ended by an error; None: the client has left."""


class Exchange:
    """Prompts that were taken, and the generations that run for them. Whoever gets one closes it.

    `results` holds what has ended, by number, and `verdicts` what it was worth. `failed` is set by
    an error, of which the record, and so the log, has then heard.
    """

    def __init__(
        self,
        ask: Ask,
        prompts: list[PreparedPrompt],
        generations: Generations,
        held: ExitStack,
        record: Record,
        token_text: Callable[[int], str],
        keep: Keep,
        *,
        arrived: float,
        request_id: str,
        trace: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`held` is given up at the end; `token_text` shows one token id; `keep` hears of answers
        that have ended; `trace` are the client's headers of trace context."""
        self.ask: Final = ask
        self.prompts: Final = prompts
        self.arrived: Final = arrived
        self.prepared: Final = time.monotonic()
        self.request_id: Final = request_id
        self.trace: Final = trace
        self.results: Final[dict[int, GenerationResult]] = {}
        self.verdicts: Final[dict[int, LiveVerdict]] = {}
        self.first_at: float | None = None
        self._generations = generations
        self._held = held
        self._record = record
        self._token_text = token_text
        self._keep = keep
        self._said: dict[int, dict[str, list[str]]] = {}
        self._closed = False
        self.failed = False

    @property
    def ended(self) -> bool:
        """Whether every answer has come to its end."""
        return len(self.results) == self.ask.answers

    @property
    def admitted_at(self) -> float | None:
        """When the engine began, by the monotonic clock."""
        return self._generations.admitted_at

    @property
    def queue_seconds(self) -> float:
        """From the engine's queue to the first pass; 0 while it waits."""
        admitted = self._generations.admitted_at
        return 0.0 if admitted is None else max(admitted - self._generations.started, 0.0)

    def usage(self) -> Usage:
        """Token counts so far, of all answers; the prompt's are final once the engine has begun."""
        usages = {index: result.usage for index, result in self.results.items()}
        usages |= self._generations.usages()
        return total((usages[index] for index in sorted(usages)), len(self.prompts))

    async def admitted(self) -> None:
        """Until the engine has begun. Raises what kept it from beginning, and closes."""
        try:
            await self._generations.admitted()
        except NInferError as error:
            self._end(error)
            raise

    async def news(self, timeout: float | None = None) -> list[Numbered]:
        """The next events, with the numbers of their answers; empty after `timeout` seconds.

        Raises the error that ends the exchange, which is then closed.
        """
        try:
            events = await self._generations.news(timeout)
            if events and self.first_at is None:
                self.first_at = time.monotonic()
                self._record.first(self)
            return self._noted(events)
        except NInferError as error:
            self._end(error)
            raise

    def close(self) -> None:
        """Give up what is held; an exchange that has not ended was left by its client."""
        self._end(None)

    def __enter__(self) -> "Exchange":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close; an error that comes up while it is open, save a cancellation, is its end."""
        self._end(error if isinstance(error, Exception) else None)

    def _noted(self, events: list[Numbered]) -> list[Numbered]:
        """The events, with what the client wants to see of the end of an answer.

        What one answer gave at once is one event, however many tokens it came from.
        """
        shown: list[Numbered] = []
        for index, event in events:
            if isinstance(event, TextDelta):
                said = self._said.setdefault(index, {"reasoning": [], "content": []})
                said[event.channel].append(event.text)
            if shown and shown[-1][0] == index:
                joined = _joined(shown[-1][1], event)
                if joined is not None:
                    shown[-1] = (index, joined)
                    continue
            if isinstance(event, GenerationResult):
                if event.finish_reason is FinishReason.CANCELLED:
                    raise UnavailableError("the server is shutting down; send the request again")
                self.results[index] = event
                self._keep_answer(index, event)
                text = self._stop_text(event)
                if text:
                    shown.append((index, TextDelta("content", text)))
            shown.append((index, event))
        if self.ended:
            self._end(None)
        return shown

    def _keep_answer(self, index: int, result: GenerationResult) -> None:
        said = {name: "".join(pieces) for name, pieces in self._said.pop(index, {}).items()}
        content = said.get("content", "")
        options = self.ask.options
        form = options.program.constraint or (JsonObjectSpec() if options.json else None)
        self.verdicts[index] = live_verdict(result, content, form)
        prompt = self.prompts[index // self.ask.count]
        self._keep(prompt, said.get("reasoning", ""), content, result)

    def _stop_text(self, result: GenerationResult) -> str:
        reason = result.finish_reason
        if self.ask.stop_text_shown and reason is FinishReason.STOP_STRING:
            return str(result.stop_reason)
        if self.ask.stop_token_shown and reason is FinishReason.STOP_TOKEN:
            return self._token_text(result.token_ids[-1])
        return ""

    def _end(self, error: BaseException | None) -> None:
        if self._closed:
            return
        self._closed = True
        self.failed = error is not None
        self._generations.close()
        self._held.close()
        if error is None and self.ended:
            self._record.done(self)
        else:
            self._record.failed(self, error)


def _joined(first: GenerationEvent, then: GenerationEvent) -> GenerationEvent | None:
    """Two neighbouring events as one, if they carry on the same text."""
    if isinstance(first, TextDelta) and isinstance(then, TextDelta):
        if first.channel == then.channel:
            text = first.text + then.text
            return TextDelta(first.channel, text, first.logprobs + then.logprobs)
    elif (
        isinstance(first, ToolCallArguments)
        and isinstance(then, ToolCallArguments)
        and first.index == then.index
    ):
        return ToolCallArguments(first.index, first.fragment + then.fragment)
    return None
