"""Sending a load: workers take the requests in order, each when it is due and a place is free."""

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from ninfer.bench.serve.asking import Clock, Served, stopwatch
from ninfer.bench.serve.load import Arrival

# Who answers: the request, when it was due, and the clock of the load.
Ask = Callable[[Arrival, float, Clock], Served]


def drive(
    arrivals: Iterable[Arrival],
    ask: Ask,
    concurrency: int,
    *,
    on_served: Callable[[Served], None] = lambda served: None,
    since_start: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Served]:
    """Ask all of them, at most `concurrency` at once; the outcomes in the order of their ends.

    A request that is due while all places are taken is sent late and keeps the time at which it
    was due: a server that cannot keep up must not be spared what piles up in front of it. Without
    such a time it is due when its turn comes. The first error of `ask` ends the load and is raised.
    """
    clock = stopwatch() if since_start is None else since_start
    lock, rest, found = threading.Lock(), iter(arrivals), []
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            with lock:
                arrival = next(rest, None)
            if arrival is None:
                return
            due = clock() if arrival.due is None else arrival.due
            ahead = due - clock()
            if ahead > 0:
                sleep(ahead)
            served = ask(arrival, due, clock)
            with lock:
                found.append(served)
                on_served(served)

    with ThreadPoolExecutor(concurrency, thread_name_prefix="ninfer-load") as pool:
        workers = [pool.submit(work) for _ in range(concurrency)]
        try:
            wait(workers, return_when=FIRST_EXCEPTION)
        finally:
            ended.set()
        for worker in workers:
            worker.result()
    return found
