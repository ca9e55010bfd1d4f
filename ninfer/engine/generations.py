"""Generations: what an asyncio task holds of generations that the inference thread runs for it."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from typing import Final

from ninfer.engine.session import Session
from ninfer.errors import NInferError
from ninfer.request import GenerationEvent, Usage
from ninfer.runtime import Progress, Sequence

# What became of a sequence, or of all of one caller's.
News = Progress | NInferError


class Inbox:
    """News for one asyncio task. Any thread may put; only the task takes and waits."""

    def __init__(self) -> None:
        self.loop: Final = asyncio.get_running_loop()
        self._news: deque[tuple[float, News]] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, at: float, news: News) -> None:
        """Add news of time `at`; `wake_all` then tells the task."""
        self._news.append((at, news))

    def take(self) -> list[tuple[float, News]]:
        """All there is now."""
        found = []
        while self._news:
            found.append(self._news.popleft())
        return found

    async def wait(self, timeout: float | None) -> bool:
        """Until there is news; False when `timeout` seconds have passed without any."""
        while not self._news:
            self._waiter = self.loop.create_future()
            timer = None if timeout is None else self.loop.call_later(timeout, self.wake)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
            if timer is not None and not self._news:
                return False
        return True

    def wake(self) -> None:
        """End a wait; on the loop's own thread."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def wake_all(inboxes: Iterable[Inbox]) -> None:
    """Tell the tasks of these inboxes, from any thread; each event loop is called once."""
    by_loop: dict[asyncio.AbstractEventLoop, set[Inbox]] = {}
    for inbox in inboxes:
        by_loop.setdefault(inbox.loop, set()).add(inbox)
    for loop, woken in by_loop.items():
        # A loop that has been closed has no one who waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_wake, woken)


def _wake(inboxes: Iterable[Inbox]) -> None:
    for inbox in inboxes:
        inbox.wake()


class Generations:
    """Generations of one prompt, numbered from 0. Close it when it is not read to the end."""

    def __init__(
        self,
        inbox: Inbox,
        made: Items[tuple[Sequence, Session]],
        started: float,
        drop: Callable[[list[Sequence]], None],
    ) -> None:
        """`drop` gives up sequences; `started` is when these were submitted, on the clock of the
        inbox's news."""
        self._inbox = inbox
        self._numbers = {
            sequence: (index, session) for index, (sequence, session) in enumerate(made)
        }
        self._drop = drop
        self._events: list[tuple[int, GenerationEvent]] = []
        self._error: NInferError | None = None
        self._last = started
        self.started: Final = started
        self.admitted_at: float | None = None

    @property
    def ended(self) -> bool:
        """Whether `news` will give nothing more."""
        return not (self._numbers or self._events or self._error)

    async def admitted(self) -> None:
        """Until one of them has left the queue. Raises what ended it there."""
        while self.admitted_at is None and self._numbers and not self._error:
            await self._inbox.wait(None)
            self._take()
        if self._error and not self._events:
            self._raise(self._error)

    async def news(self, timeout: float | None = None) -> list[tuple[int, GenerationEvent]]:
        """Events that are ready, at least one, each with the number of its generation.

        A generation's last event is its GenerationResult. Empty when `timeout` seconds have passed
        without any, or when all have ended. Raises the error of any of them, which ends all.
        """
        end = None if timeout is None else time.monotonic() + timeout
        self._take()
        while not self._events and not self.ended:
            if self._error:
                self._raise(self._error)
            # Tokens that give no event yet, of a value that is held back, do not begin it anew.
            left = None if end is None else end - time.monotonic()
            if (left is not None and left <= 0) or not await self._inbox.wait(left):
                return []
            self._take()
        events, self._events = self._events, []
        return events

    def usages(self) -> dict[int, Usage]:
        """Token counts so far of those that have not ended, by number."""
        return {
            index: session.usage(sequence) for sequence, (index, session) in self._numbers.items()
        }

    def close(self) -> None:
        """Cancel those that still run; pages and state slots are free after the step under way."""
        if self._numbers:
            self._drop(list(self._numbers))
            self._numbers = {}

    def _raise(self, error: NInferError) -> None:
        self._error = None
        self.close()
        raise error

    def _take(self) -> None:
        for at, news in self._inbox.take():
            if self._error:
                return
            if isinstance(news, NInferError):
                self._error = news
                return
            for _, session in self._numbers.values():
                session.spent(at - self._last)
            self._last = at
            if self.admitted_at is None and news.error is None:
                self.admitted_at = at
            # One that a stop string has ended is gone, and the runtime did not know yet.
            if news.sequence in self._numbers:
                self._feed(*self._numbers[news.sequence], news)

    def _feed(self, index: int, session: Session, news: Progress) -> None:
        try:
            self._events += [(index, event) for event in session.feed(news)]
        except NInferError as error:
            self._error = error
            return
        if session.result is not None:
            del self._numbers[news.sequence]
            self._drop([news.sequence])
