"""Work in a second process, piece by piece: one that hangs or dies costs itself, not the others."""

from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")
_LEAVE_S: Final = 10.0


def isolated(
    jobs: Sequence[Job], work: Callable[[Job], Result], limit_s: float
) -> Iterator[tuple[Job, Result | None, str]]:
    """Each job with its result and "", or with None and why there is none, in order.

    All jobs share one process as long as it lives; `work` must be importable, jobs and results
    picklable. A job that takes more than `limit_s` seconds, or the process with it, is ended, and
    the next one gets a new process. An exception of a job is a reason like any other, but costs
    the process too: a card that reported an error does not recover in the same one.
    """
    done = 0
    while done < len(jobs):
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, work, list(jobs[done:])))
        process.start()
        theirs.close()
        try:
            for job in jobs[done:]:
                result, why = _answer(ours, limit_s)
                done += 1
                yield job, result, why
                if why:
                    break
        finally:
            process.kill()
            process.join(_LEAVE_S)
            ours.close()


def _answer(connection: Connection, limit_s: float) -> tuple[Any, str]:
    if not connection.poll(limit_s):
        return None, f"no answer within {limit_s:.0f} s"
    try:
        result, why = connection.recv()
    except EOFError:
        return None, "its process died"
    return result, str(why)


def _serve(connection: Connection, work: Callable[[Any], Any], jobs: list[Any]) -> None:
    for job in jobs:
        try:
            connection.send((work(job), ""))
        except Exception as error:  # noqa: BLE001  # whatever a job raises is its answer
            text = " ".join(str(error).split())
            connection.send((None, f"{type(error).__name__}: {text}"))
            return
