"""AsyncEngine: one inference thread that owns the engine, any number of asyncio callers."""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable
from collections.abc import Sequence as Items
from functools import partial
from typing import Final, TypeVar

from ninfer.engine.callers import Callers
from ninfer.engine.constraints import constraint_spec
from ninfer.engine.engine import Engine
from ninfer.engine.generation_options import GenerationOptions
from ninfer.engine.generations import Generations, Inbox
from ninfer.engine.session import Session
from ninfer.engine.watchdog import Watchdog
from ninfer.errors import NInferError, RequestFailedError, UnavailableError
from ninfer.frontend import SourceRules
from ninfer.log import get_logger
from ninfer.request import Conversation, FinishReason, GenerationEvent, PreparedPrompt, Recall
from ninfer.runtime import Progress, Sequence, SequenceRequest

log = get_logger(__name__)

T = TypeVar("T")
# Seconds between two audits of an engine that has nothing to do.
AUDIT_EVERY: Final = 10.0
# Seconds between two looks at what `close` waits for.
_LOOK: Final = 0.02


class AsyncEngine:
    """Runs an engine on a thread of its own; only that thread touches pages, slots and weights.

    Text is made on the event loop of the caller. A consumer that stops reading, or whose task is
    cancelled, frees its pages and state slot within the step that is under way.

    No caller waits for ever. A step that takes longer than `step_timeout` seconds (0: any time is
    allowed) is logged and fails everyone who waits, and everyone who comes, until it is over; then
    the engine serves again. An error of a step, or an audit that does not add up, fails the engine
    for good. `trouble` says which.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        step_timeout: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        audit_every: float = AUDIT_EVERY,
    ) -> None:
        """`step_timeout` defaults to the engine's own --step-timeout-s."""
        self._engine = engine
        self._clock = clock
        self._audit_every = audit_every
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._callers = Callers()
        self._lock = threading.Lock()
        self._trouble: UnavailableError | None = None
        self._closing: UnavailableError | None = None
        self._stalled = False
        self._failed = False
        self._steps = 0
        self._generated = 0
        self._host_seconds = 0.0
        self._waited_seconds = 0.0
        self._orphans: list[Sequence] = []  # of callers who were told of trouble
        limit = engine.step_timeout if step_timeout is None else step_timeout
        self._watchdog = Watchdog(limit, clock, self._stall)
        self._thread = threading.Thread(target=self._run, name="ninfer-inference", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> UnavailableError | None:
        """Why nobody is served now; None: the engine is ready."""
        return self._trouble

    @property
    def has_failed(self) -> bool:
        """Whether it has failed for good, and only another engine will serve again."""
        return self._failed

    @property
    def steps(self) -> int:
        """Steps so far."""
        return self._steps

    @property
    def waited_seconds(self) -> float:
        """Time of them in which the host waited for decode rounds of the device."""
        return self._waited_seconds

    @property
    def host_seconds(self) -> float:
        """The rest of their time."""
        return self._host_seconds

    @property
    def generated_tokens(self) -> int:
        """Tokens that all of them have generated."""
        return self._generated

    @property
    def is_ready(self) -> bool:
        """Whether a request would be taken now."""
        return self._trouble is None

    @property
    def engine(self) -> Engine:
        """The engine, for what may be asked of it from any thread: texts, facts and a snapshot."""
        return self._engine

    def prepare(
        self,
        conversation: Conversation,
        sources: SourceRules | None = None,
        recall: Recall | None = None,
    ) -> PreparedPrompt:
        """Load media, render and tokenize messages; takes its time, so not on an event loop.

        Raises PromptError naming the message. `recall` knows what the model wrote itself.
        """
        return self._engine.prepare(conversation, sources, recall)

    async def start(
        self,
        prompts: Items[PreparedPrompt],
        options: GenerationOptions,
        count: int = 1,
        *,
        arrived: float | None = None,
    ) -> Generations:
        """Queue `count` generations of each prompt; the caller closes what it gets.

        Generation k of prompt p has the number p * count + k. All are queued, or none.

        Raises as Engine.generate_many, and UnavailableError, now or from what it gives, when the
        engine is in trouble; a generation that `close` ends has the result `cancelled`.
        """
        build = partial(self._ready, prompts, options, count, arrived)
        # Compiling a grammar may take a second, in which no one's text would go out.
        slow = constraint_spec(options) is not None
        requests = await asyncio.to_thread(build) if slow else build()
        inbox = Inbox()
        started: list[Sequence] = []

        def submit() -> list[tuple[Sequence, Session]]:
            made: list[tuple[Sequence, Session]] = []
            for group in requests:
                made += self._engine.submit_requests(group)
                for sequence, _ in made[len(started) :]:
                    started.append(sequence)
                    self._callers.add(sequence, inbox)
            return made

        def drop(sequences: list[Sequence]) -> None:
            self._commands.put(partial(self._drop, sequences))

        now = self._clock()
        try:
            made = await self._call(submit)
        except BaseException:
            # Commands keep their order, so this also finds a start that nobody waited for.
            drop(started)
            raise
        return Generations(inbox, made, now, drop)

    async def generate(
        self,
        prompt: PreparedPrompt,
        options: GenerationOptions,
        *,
        arrived: float | None = None,
    ) -> AsyncGenerator[GenerationEvent, None]:
        """Text pieces as they become ready, then a GenerationResult; raises as Engine.generate.

        Also raises UnavailableError, at once or later, when the engine is in trouble; a generation
        that `close` ends has the result `cancelled`.
        """
        pairs = self.generate_many(prompt, options, 1, arrived=arrived)
        async with contextlib.aclosing(pairs) as events:
            async for _, event in events:
                yield event

    async def generate_many(
        self,
        prompt: PreparedPrompt,
        options: GenerationOptions,
        count: int,
        *,
        arrived: float | None = None,
    ) -> AsyncGenerator[tuple[int, GenerationEvent], None]:
        """The events of `count` generations as they come, each with its number from 0.

        Raises as Engine.generate_many, and UnavailableError as `generate`; an error of one of them
        ends all.
        """
        running = await self.start([prompt], options, count, arrived=arrived)
        try:
            while not running.ended:
                for pair in await running.news():
                    yield pair
        finally:
            running.close()

    async def close(self, drain: float = 0.0) -> None:
        """End the engine and the thread, after `drain` seconds in which who is here may finish.

        New requests are refused at once, and who has not finished in time is cancelled. May be
        called twice. A step that has stalled is not waited for: its thread ends with the process.
        """
        self._closing = UnavailableError("the engine is closing; send the request elsewhere")
        with self._lock:
            self._trouble = self._trouble or self._closing
        end = self._clock() + drain
        while self._callers.count and self._clock() < end and not self._stalled:
            await asyncio.sleep(_LOOK)
        self._commands.put(None)
        while self._thread.is_alive() and not self._stalled:
            await asyncio.to_thread(self._thread.join, _LOOK)
        self._watchdog.close()

    def _ready(
        self,
        prompts: Items[PreparedPrompt],
        options: GenerationOptions,
        count: int,
        arrived: float | None,
    ) -> list[list[tuple[SequenceRequest, Session]]]:
        """What is to be queued. Whatever goes wrong is the caller's own failure."""
        try:
            return [
                self._engine.requests(prompt, options, count, arrived=arrived) for prompt in prompts
            ]
        except NInferError:
            raise
        except Exception as error:
            log.exception("a request could not be made ready")
            raise RequestFailedError(f"the request could not be started: {error!r}") from error

    async def _call(self, work: Callable[[], T]) -> T:
        """Run `work` on the inference thread, between two steps."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: NInferError | None) -> None:
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]  # set when there is no error

        def fail(error: NInferError) -> None:
            _tell(loop, settle, None, error)

        def run() -> None:
            if not self._callers.waits(fail):
                return
            try:
                result = work()
            except NInferError as error:
                fail(error)
            except Exception as error:
                log.exception("a request could not be started")
                fail(RequestFailedError(f"the request could not be started: {error!r}"))
            else:
                _tell(loop, settle, result, None)
            self._callers.done(fail)

        with self._lock:
            if self._trouble is not None:
                # A new one each time: an error that is raised again keeps the frames of all.
                raise UnavailableError(str(self._trouble))
            self._callers.wait(fail)
            self._commands.put(run)
        return await done

    def _drop(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            self._callers.remove(sequence)
            self._engine.cancel(sequence)

    def _give_up(self, trouble: UnavailableError) -> None:
        """Take no requests from now on, and tell everyone who waits."""
        with self._lock:
            self._trouble = trouble
        self._orphans += self._callers.fail(trouble, self._clock())

    def _stall(self, seconds: float) -> None:
        """The watchdog's finding, on its thread: the step may never end, so only tell of it."""
        log.error("a step has taken %.1f s: %s", seconds, self._engine.describe())
        self._stalled = True
        self._give_up(
            UnavailableError(
                f"a step of the engine has taken {seconds:.1f} s, longer than --step-timeout-s "
                "allows; try again later"
            )
        )

    def _run(self) -> None:
        """The inference thread. However it ends, nobody is left waiting."""
        try:
            self._serve()
        except Exception as error:
            log.exception("the engine has failed: %s", self._engine.describe())
            self._failed = True
            reason = f"the engine has failed ({type(error).__name__}: {error}); restart it"
            self._give_up(UnavailableError(reason))

    def _serve(self) -> None:
        """Commands first, then a step, until it is closed."""
        audited = self._clock()
        while True:
            has_work = self._engine.has_work
            if not has_work and self._clock() - audited >= self._audit_every:
                self._engine.check()
                audited = self._clock()
            try:
                command = self._next_command(wait=not has_work)
            except queue.Empty:
                begin, waited = time.perf_counter(), self._engine.waited_seconds
                with self._watchdog.watching():
                    news = self._engine.step()
                # Rounds that had to be given up take their count with them.
                waited = max(self._engine.waited_seconds - waited, 0.0)
                self._waited_seconds += waited
                self._host_seconds += time.perf_counter() - begin - waited
                self._recover()
                self._steps += 1
                self._generated += sum(len(progress.tokens) for progress in news)
                self._callers.deliver(news, self._clock())
                continue
            if command is None:
                self._cancel_all()
                self._engine.close()
                return
            with self._watchdog.watching():
                command()
            self._recover()

    def _next_command(self, *, wait: bool) -> Callable[[], None] | None:
        """The next command; idle times are used. Raises queue.Empty when not to `wait` for one."""
        while True:
            with contextlib.suppress(queue.Empty):
                return self._commands.get_nowait()
            if not wait:
                raise queue.Empty
            with self._watchdog.watching():
                pause = self._engine.tidy()
            self._recover()
            with contextlib.suppress(queue.Empty):
                return self._commands.get(timeout=pause)

    def _recover(self) -> None:
        """Serve again when what had stalled is over; its callers have gone."""
        if not self._stalled:
            return
        log.warning("the stalled step is over; the engine serves again")
        self._drop(self._orphans)
        self._orphans = []
        with self._lock:
            self._stalled = False
            self._trouble = self._closing

    def _cancel_all(self) -> None:
        """The end of every generation by `close`."""
        for sequence in self._callers.sequences:
            self._engine.cancel(sequence)
            self._callers.deliver([Progress(sequence, (), FinishReason.CANCELLED)], self._clock())
            self._callers.remove(sequence)
        self._give_up(UnavailableError("the engine is closed"))


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[..., object], *news: object) -> None:
    """Call `what` on a caller's event loop."""
    # A loop that has been closed has no one who waits.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(what, *news)
