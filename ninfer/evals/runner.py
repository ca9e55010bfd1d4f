"""Answering items, several at once, and grading each answer as it comes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from ninfer.evals.answer import Answer
from ninfer.evals.graders import grade
from ninfer.evals.results import Outcome
from ninfer.evals.suite import Item


async def run_items(
    items: Iterable[Item],
    answer: Callable[[Item], Awaitable[Answer]],
    on_outcome: Callable[[Outcome], None],
    *,
    concurrency: int,
) -> None:
    """Ask `answer` for every item, at most `concurrency` at a time, begun in order.

    `on_outcome` is called once for each item in the order of the answers' ends. The first error of
    `answer` ends the run and is raised; answers under way are then cancelled, as they are when the
    call itself is cancelled.
    """
    rest = iter(items)

    async def work() -> None:
        for item in rest:
            given = await answer(item)
            reasons = grade(item.grader, given)
            on_outcome(Outcome(item.id, item.task, item.digest, reasons, given))

    workers = [asyncio.create_task(work()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
