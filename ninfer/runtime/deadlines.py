"""Deadlines: which sequences have waited or run for longer than they may."""

from collections.abc import Iterable, Iterator

from ninfer.errors import QueueTimeoutError
from ninfer.request import FinishReason
from ninfer.runtime.requests import Progress
from ninfer.runtime.sequence import Sequence, Status


def overdue(
    sequences: Iterable[Sequence], now: float, pending_timeout: float | None
) -> Iterator[Progress]:
    """The end of every sequence whose time is up at `now`.

    A request's own deadline holds in every state and ends it with what it has so far. The pending
    timeout (seconds from arrival) is for requests that never had a place: a preempted one had, and
    so had one whose prompt another one computes or has computed for it.
    """
    for sequence in sequences:
        if now >= sequence.expires:
            yield Progress(sequence, (), FinishReason.DEADLINE)
        elif (
            pending_timeout is not None
            and _had_no_place(sequence.leader or sequence)
            and now - sequence.arrived >= pending_timeout
        ):
            yield Progress(sequence, (), error=_no_place(pending_timeout))


def _had_no_place(sequence: Sequence) -> bool:
    waits = sequence.status is Status.WAITING
    return waits and not sequence.preemptions and not sequence.generated


def _no_place(seconds: float) -> QueueTimeoutError:
    return QueueTimeoutError(
        f"no place became free within {seconds * 1000:.0f} ms of the request's arrival; try again "
        "later or raise --pending-timeout-ms"
    )
