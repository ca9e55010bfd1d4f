"""How busy a runtime is: numbers for gauges and one line for a log, read from any thread."""

from dataclasses import dataclass

from ninfer.runtime.kv_pages import PagePool
from ninfer.runtime.scheduler import Scheduler
from ninfer.runtime.state_slots import StateSlotPool


@dataclass(frozen=True, slots=True)
class RuntimeLoad:
    """Sequences by what they do, and what is free; the last three count since the start."""

    running: int
    prefilling: int  # of those that run: their prompt
    replaying: int  # of those that run: what they had before they gave way
    waiting: int
    preempted: int  # of those that wait
    fetching: int  # of those that wait: their prefix, from host memory or disk
    pages: int
    free_pages: int
    slots: int
    free_slots: int
    preemptions: int
    replays: int  # of sequences that had given way and run again
    replayed_tokens: int  # computed a second time by these


def load_of(
    scheduler: Scheduler, pages: PagePool, slots: StateSlotPool, fetching: int = 0
) -> RuntimeLoad:
    """The load as it is now; under way a step may move a sequence while it is counted."""
    running, waiting = list(scheduler.running), list(scheduler.waiting)
    return RuntimeLoad(
        running=len(running),
        prefilling=sum(not sequence.generated for sequence in running),
        replaying=sum(s.generated > 0 and not s.decodes for s in running),
        waiting=len(waiting),
        preempted=sum(sequence.preemptions > 0 for sequence in waiting),
        fetching=fetching,
        pages=pages.capacity,
        free_pages=pages.free_count,
        slots=slots.capacity,
        free_slots=slots.free_count,
        preemptions=scheduler.preemptions,
        replays=scheduler.replays,
        replayed_tokens=scheduler.replayed_tokens,
    )


def load_in_words(scheduler: Scheduler, pages: PagePool, slots: StateSlotPool) -> str:
    """The load and the state of each running sequence, in one line."""
    rows = "; ".join(
        f"{s.cached} of {len(s.tokens)} tokens cached, {s.generated} generated"
        + ("" if s.is_encoded else ", media not encoded")
        for s in list(scheduler.running)
    )
    load = load_of(scheduler, pages, slots)
    return (
        f"{load.running} running ({rows or 'none'}), {load.waiting} waiting, "
        f"{load.free_pages} of {load.pages} pages and "
        f"{load.free_slots} of {load.slots} state slots free"
    )
