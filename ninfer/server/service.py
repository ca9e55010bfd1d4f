"""Service: the engine as the routes see it, with the server's defaults, places and records."""

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from starlette.requests import Request

from ninfer.engine import (
    AsyncEngine,
    DownloadRules,
    EngineFacts,
    GenerationOptions,
    SourceRules,
    TextSide,
)
from ninfer.errors import CapacityError, PromptError, QueueTimeoutError, UnavailableError
from ninfer.log import get_logger
from ninfer.request import Conversation, PreparedPrompt
from ninfer.server.activity import Activity
from ninfer.server.ask import Ask, RawPrompt
from ninfer.server.errors import Refusal
from ninfer.server.exchange import Exchange
from ninfer.server.journal import Journal, Spans
from ninfer.server.keys import Key
from ninfer.server.metrics import Metrics
from ninfer.server.options import ServerOptions, defaults_of
from ninfer.server.reports import report_throughput
from ninfer.server.request_log import RequestLog
from ninfer.server.responses.store import ResponseStore, StoredResponses
from ninfer.server.turns import WrittenTurns

T = TypeVar("T")
_log = get_logger(__name__)
# Bits of a seed.
_SEED: Final = 64
_TURN_END: Final = "<|im_end|>"
_FALLBACK_NAME: Final = "ninfer"
# W3C trace context.
_TRACE_HEADERS: Final = ("traceparent", "tracestate")
_LOOK_SECONDS: Final = 0.02
_LAST_WORDS_SECONDS: Final = 2.0


class Service:
    """What all routes share. One event loop uses it."""

    def __init__(
        self,
        engine: AsyncEngine,
        options: ServerOptions,
        spans: Spans | None = None,
        responses: StoredResponses | None = None,
    ) -> None:
        """`spans` makes traces; `responses` stands in for a store in memory.

        Raises UsageError for a request log that cannot be opened.
        """
        self.engine: Final = engine
        self.options: Final = options
        self.facts: Final[EngineFacts] = engine.engine.facts
        self.text: Final[TextSide] = engine.engine.text
        self.model: Final = options.model_id or self.facts.model_id or _FALLBACK_NAME
        self.names: Final = (self.model, *options.model_alias)
        self.defaults: Final[GenerationOptions] = defaults_of(options)
        self.metrics: Final = Metrics(engine, self.model)
        self.log: Final = RequestLog(options.request_log_jsonl)
        self.activity: Final = Activity(options.activity_file)
        self.turns: Final = WrittenTurns(self.text.special_ids, self.text.added_id(_TURN_END))
        self.responses: Final[StoredResponses] = (
            ResponseStore(options.response_store_max_records, options.response_store_max_mib << 20)
            if responses is None
            else responses
        )
        self.created: Final = int(time.time())
        self.places: Final = self.facts.max_concurrency + self.facts.max_pending
        drafts = {"backend": self.facts.spec or "none", "draft_window": self.facts.draft_tokens}
        sampling = engine.engine.sampling_params
        self._spans = spans
        self._journal = Journal(self.metrics, self.log, drafts, sampling, self.model, spans)
        self._sources = SourceRules(
            downloads=DownloadRules(private_addresses=options.private_media)
        )
        threads = options.media_preprocess_threads or os.cpu_count() or 1
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="ninfer-prepare")
        self._taken = 0
        self._media_bytes = 0
        self._draining = False
        self._unknown: set[str] = set()

    @property
    def keep_alive(self) -> float:
        """Seconds of silence after which a stream gives a sign of life."""
        return self.options.keep_alive_ms / 1000

    @property
    def trouble(self) -> str | None:
        """Why no request would be served now."""
        if self._draining:
            return "the server is shutting down"
        return None if self.engine.trouble is None else str(self.engine.trouble)

    @property
    def active(self) -> int:
        """Answers that have a place: queued, running, or being sent."""
        return self._taken

    def check_model(self, name: str | None) -> str:
        """The name by which a client asked for the model. Raises Refusal for one not served."""
        if name is None or name in self.names:
            return name or self.model
        raise Refusal(
            f"the model {name[:80]!r} does not exist; this server has {', '.join(self.names)}",
            status=404,
            code="model_not_found",
            param="model",
        )

    def seed(self, given: int | None) -> int:
        """A seed for the engine: the client's, the server's, or a new one."""
        if given is None:
            given = self.options.seed
        return secrets.randbits(_SEED) if given is None else given % 2**_SEED

    def note_unknown(self, names: set[str]) -> None:
        """Members of a request that have no meaning here: counted, and logged once each."""
        for name in sorted(names):
            # Clients make the names, so only some may become labels that last.
            known = name in self._unknown
            if not known and len(self._unknown) < 256:
                self._unknown.add(name)
                _log.info("requests have a member %.80r, which has no meaning here", name)
                known = True
            self.metrics.count("unknown_request_fields", name[:80] if known else "others")

    async def in_thread(self, work: Callable[..., T], *given: object) -> T:
        """Run work that takes its time away from the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    async def prepare(self, conversation: Conversation, key: Key) -> PreparedPrompt:
        """Render and tokenize, with media. Turns that the model wrote for `key` keep their ids.

        Raises Refusal for media, PromptError for the rest.
        """
        media = [
            part for turn in conversation.messages for part in turn.content if part.kind != "text"
        ]
        if media and not self.facts.vision:
            raise Refusal(
                f"{media[0].place}: this server takes no images and videos; it was started without "
                "--vision",
                code="vision_disabled",
                param=media[0].place,
            )
        try:
            recall = self.turns.recall_for(key.number)
            return await self.in_thread(self.engine.prepare, conversation, self._sources, recall)
        except PromptError as error:
            place = next((part.place for part in media if str(error).startswith(part.place)), None)
            if place is None:
                raise
            raise Refusal(str(error), code="invalid_media", param=place) from None

    async def raw_prompt(self, prompt: RawPrompt) -> PreparedPrompt:
        """A prompt without turns. Raises PromptError for text or ids that are none."""
        if prompt.token_ids is not None:
            return await self.in_thread(self.text.prompt_of_ids, prompt.token_ids)
        return await self.in_thread(self.text.prompt_of_text, prompt.text)

    async def open(self, ask: Ask, request: Request) -> Exchange:
        """Take a request in and wait until the engine begins with it.

        Raises what keeps it from beginning; nothing has been sent then.
        """
        request_id, key = request.state.request_id, request.state.key
        request.state.journaled = True
        arrived = time.monotonic()
        trace = {name: value for name, value in request.headers.items() if name in _TRACE_HEADERS}
        refused = partial(self._journal.refused, ask, request_id, arrived=arrived, trace=trace)
        with ExitStack() as held:
            try:
                exchange = await self._begin(ask, key, held, request_id, arrived, trace)
            except asyncio.CancelledError:
                refused(None)
                raise
            except Exception as error:
                refused(error)
                raise
        request.state.exchange = exchange
        await exchange.admitted()
        return exchange

    async def _begin(
        self,
        ask: Ask,
        key: Key,
        held: ExitStack,
        request_id: str,
        arrived: float,
        trace: Mapping[str, str],
    ) -> Exchange:
        if self._draining:
            raise UnavailableError("the server is shutting down; send the request elsewhere")
        held.enter_context(key.use())
        held.enter_context(self.activity.during())
        held.enter_context(self._places_for(ask.answers))
        self._journal.arrived(ask, request_id)
        prompts = await self._prompts(ask, key)
        held.enter_context(self._media_room(prompts))
        generations = await self.engine.start(prompts, ask.options, ask.count, arrived=arrived)
        return Exchange(
            ask,
            prompts,
            generations,
            held.pop_all(),
            self._journal,
            lambda token_id: self.text.decode([token_id]),
            partial(self.turns.keep, key.number),
            arrived=arrived,
            request_id=request_id,
            trace=trace,
        )

    async def _prompts(self, ask: Ask, key: Key) -> list[PreparedPrompt]:
        """The prompts of a request, within the time that it may wait."""
        seconds = self.facts.pending_seconds
        try:
            async with asyncio.timeout(seconds):
                if ask.conversation is None:
                    return [await self.raw_prompt(prompt) for prompt in ask.prompts]
                prompt = await self.prepare(ask.conversation, key)
        except TimeoutError:
            raise QueueTimeoutError(
                f"the prompt was not ready within {seconds:g} seconds; try again later"
            ) from None
        # The model sees the tools; that none may be called, the parser and a bias see to.
        return [replace(prompt, tools=()) if ask.calls_off else prompt]

    @contextmanager
    def _places_for(self, answers: int) -> Iterator[None]:
        if answers > self.places:
            raise Refusal(
                f"the request asks for {answers} answers; this server has {self.places} places for "
                "running and waiting ones: ask for fewer at once",
                code="unsupported_value",
                param="n",
            )
        if self._taken + answers > self.places:
            raise CapacityError(
                f"all {self.places} places for running and waiting requests are taken; try again "
                "later, or raise --max-pending-requests"
            )
        self._taken += answers
        try:
            yield
        finally:
            self._taken -= answers

    @contextmanager
    def _media_room(self, prompts: list[PreparedPrompt]) -> Iterator[None]:
        size = sum(media.patches.nbytes for prompt in prompts for media in prompt.media)
        most = self.options.media_live_mib << 20
        if size > most:
            raise Refusal(
                f"the media of the request take {size:,} bytes of memory, --media-live-mib gives "
                f"{most:,}; send fewer or smaller ones",
                code="media_budget_exceeded",
            )
        if self._media_bytes + size > most:
            raise CapacityError("media of other requests fill --media-live-mib; try again later")
        self._media_bytes += size
        try:
            yield
        finally:
            self._media_bytes -= size

    async def report(self) -> None:
        """Tell the log now and then how much was done; until it is cancelled."""
        seconds = self.options.log_stats_interval_ms / 1000
        if seconds:
            await report_throughput(self.engine, self.log, seconds)

    async def drain(self, seconds: float) -> None:
        """Take no new requests; end the engine when those under way are done, or after `seconds`.

        Those that are not done in time end with an error that says so.
        """
        self._draining = True
        _log.info("shutting down: %d answers under way may take %g s", self.active, seconds)
        end = time.monotonic() + seconds
        while self.active and time.monotonic() < end:
            await asyncio.sleep(_LOOK_SECONDS)
        await self.engine.close()
        # What was cancelled still has its last words to send.
        end = time.monotonic() + _LAST_WORDS_SECONDS
        while self.active and time.monotonic() < end:
            await asyncio.sleep(_LOOK_SECONDS)

    async def close(self) -> None:
        """End engine, threads and log. May be called twice."""
        self._draining = True
        await self.engine.close()
        if self._spans is not None:
            await asyncio.to_thread(self._spans.close)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.log.close()
