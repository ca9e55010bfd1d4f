"""AsyncEngine: one inference thread that owns the engine, any number of asyncio callers."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import TypeVar

from ninfer.engine.engine import Engine
from ninfer.engine.options import GenerationOptions
from ninfer.engine.session import Session
from ninfer.errors import NInferError
from ninfer.log import get_logger
from ninfer.request import Conversation, GenerationEvent, PreparedPrompt
from ninfer.runtime import Progress, Sequence

log = get_logger(__name__)

T = TypeVar("T")


class AsyncEngine:
    """Runs an engine on a thread of its own; only that thread touches pages, slots and weights.

    Text is made on the event loop of the caller. A consumer that stops reading, or whose task is
    cancelled, frees its pages and state slot within the step that is under way.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._inboxes: dict[Sequence, Callable[[Progress], None]] = {}
        self._thread = threading.Thread(target=self._run, name="ninfer-inference", daemon=True)
        self._thread.start()

    def prepare(self, conversation: Conversation) -> PreparedPrompt:
        """Render and tokenize messages. Raises PromptError naming the message."""
        return self._engine.prepare(conversation)

    async def generate(
        self, prompt: PreparedPrompt, options: GenerationOptions
    ) -> AsyncGenerator[GenerationEvent, None]:
        """Text pieces as they become ready, then a GenerationResult; raises as Engine.generate."""
        loop = asyncio.get_running_loop()
        inbox: asyncio.Queue[Progress] = asyncio.Queue()

        def deliver(progress: Progress) -> None:
            loop.call_soon_threadsafe(inbox.put_nowait, progress)

        started: list[Sequence] = []

        def start() -> Session:
            sequence, session = self._engine.submit(prompt, options)
            self._inboxes[sequence] = deliver
            started.append(sequence)
            return session

        try:
            session = await self._call(start)
            while session.result is None:
                waited = loop.time()
                progress = await inbox.get()
                session.spent(loop.time() - waited)
                for event in session.feed(progress):
                    yield event
        finally:
            # Commands keep their order, so this also finds a start that nobody waited for.
            self._commands.put(lambda: self._drop(started))

    async def close(self) -> None:
        """End every generation, the engine and the thread."""
        self._commands.put(None)
        await asyncio.to_thread(self._thread.join)

    async def _call(self, work: Callable[[], T]) -> T:
        """Run `work` on the inference thread, between two steps."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: NInferError | None) -> None:
            if done.cancelled():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]  # set when there is no error

        def run() -> None:
            try:
                result = work()
            except NInferError as error:
                loop.call_soon_threadsafe(settle, None, error)
            else:
                loop.call_soon_threadsafe(settle, result, None)

        self._commands.put(run)
        return await done

    def _drop(self, sequences: Iterable[Sequence]) -> None:
        for sequence in sequences:
            self._inboxes.pop(sequence, None)
            self._engine.cancel(sequence)

    def _run(self) -> None:
        """The inference thread: commands first, then a step, until it is closed."""
        while True:
            try:
                command = self._next_command()
            except queue.Empty:
                for progress in self._engine.step():
                    if progress.sequence in self._inboxes:
                        self._inboxes[progress.sequence](progress)
                continue
            if command is None:
                self._drop(list(self._inboxes))
                self._engine.close()
                return
            command()

    def _next_command(self) -> Callable[[], None] | None:
        """The next command; idle times are used. Raises queue.Empty when there are steps to do."""
        if self._engine.has_work:
            return self._commands.get_nowait()
        while (pause := self._engine.tidy()) is not None:
            with contextlib.suppress(queue.Empty):
                return self._commands.get(timeout=pause)
        return self._commands.get()
