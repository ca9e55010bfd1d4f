"""Running a campaign: what has no response yet is asked, and each answer is stored at once."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Final, Protocol

from ninfer.audit import ResponseFile, StoredResponse
from ninfer.bench.corpus.fixtures import warm_up
from ninfer.bench.corpus.plan import Ask
from ninfer.errors import UsageError

# Failures one after another by which a campaign knows that nobody answers any more.
_FAILURES: Final = 5


class Partner(Protocol):
    """Who is asked: a server, or an engine in this process."""

    def answer(self, ask: Ask, mode: str) -> StoredResponse:
        """The response, whose `error` is set where there was none. May be called by threads."""


class Campaign:
    """Asks of all modes and the file of their responses."""

    def __init__(self, asks: Sequence[Ask], file: ResponseFile) -> None:
        self.asks: Final = asks
        self._file = file
        self._failed = 0

    def open(self, mode: str) -> list[Ask]:
        """What is still to be asked in a mode: never asked, or answered by an error only."""
        found = self._file.responses
        return [
            ask
            for ask in self.asks
            if (key := ask.key(mode)) not in found or found[key].error is not None
        ]

    def check_same(self, asks: Iterable[Ask], mode: str, origin: str) -> None:
        """Refuse to mix: what the file holds must be of the same model and contracts.

        Raises UsageError naming the difference.
        """
        for ask in asks:
            stored = self._file.responses.get(ask.key(mode))
            if stored is None:
                continue
            if stored.origin.model != origin:
                raise UsageError(
                    f"--output {self._file.path}: holds responses of model "
                    f"{stored.origin.model!r}, not of {origin!r}; give another file"
                )
            if stored.contract != ask.fixture.contract:
                raise UsageError(
                    f"--output {self._file.path}: fixture {ask.fixture.name} had another contract; "
                    "give another file"
                )

    def run(
        self, partner: Partner, mode: str, concurrency: int, on_response: Callable[[], None]
    ) -> None:
        """Ask what is open in a mode, after one question that only warms up.

        Raises UsageError when one after another fails; what was answered is in the file.
        """
        asks = self.open(mode)
        if not asks:
            return
        first = asks[0]
        fixture = warm_up()
        self._heed(partner.answer(Ask(fixture, first.sampling, first.seed, fixture.max_new), mode))
        pool = ThreadPoolExecutor(concurrency, thread_name_prefix="ninfer-corpus")
        try:
            waiting = [pool.submit(partner.answer, ask, mode) for ask in asks]
            for future in as_completed(waiting):
                response = future.result()
                self._file.add(response)
                on_response()
                self._heed(response)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _heed(self, response: StoredResponse) -> None:
        self._failed = self._failed + 1 if response.error is not None else 0
        if self._failed >= _FAILURES:
            raise UsageError(
                f"{self._failed} requests one after another failed, the last with: "
                f"{response.error}; the same command goes on when that is repaired"
            )
