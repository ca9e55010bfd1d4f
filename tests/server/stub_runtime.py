"""A runtime without a model, which costs next to nothing: what is left is the server's own work."""

import time
from collections.abc import Sequence as Items
from dataclasses import fields
from typing import Any

from ninfer.engine import Engine
from ninfer.request import FinishReason
from ninfer.runtime import Progress, Sequence, SequenceRequest, Status
from ninfer.runtime.load import RuntimeLoad
from ninfer.runtime.requests import new_sequence


class StubRuntime:
    """Gives every sequence the next of some fixed ids in each step, `seconds` apart."""

    prefixes = None
    speculation = None
    rounds = None

    def __init__(self, ids: Items[int], seconds: float = 0.0) -> None:
        self._ids = ids
        self._seconds = seconds
        self._running: list[Sequence] = []
        self.drawn: list[float] = []  # when each step ended

    @property
    def has_work(self) -> bool:
        return bool(self._running)

    def output_capacity(self, prompt_tokens: int) -> int:
        return 1 << 20

    def submit_many(self, requests: Items[SequenceRequest]) -> list[Sequence]:
        made = [new_sequence(request, time.monotonic()) for request in requests]
        for sequence in made:
            sequence.status = Status.RUNNING
        self._running += made
        return made

    def step(self) -> list[Progress]:
        time.sleep(self._seconds)
        news = []
        for sequence in list(self._running):
            token = self._ids[sequence.generated % len(self._ids)]
            sequence.append(token)
            last = sequence.remaining == 0
            news.append(Progress(sequence, (token,), FinishReason.OUTPUT_LIMIT if last else None))
            if last:
                self.cancel(sequence)
        self.drawn.append(time.monotonic())
        return news

    def cancel(self, sequence: Sequence) -> None:
        sequence.status = Status.FINISHED
        if sequence in self._running:
            self._running.remove(sequence)

    def load(self) -> RuntimeLoad:
        running = len(self._running)
        idle = dict.fromkeys((field.name for field in fields(RuntimeLoad)), 0)
        return RuntimeLoad(**idle | {"running": running, "slots": 64, "free_slots": 64 - running})

    def describe(self) -> str:
        return f"{len(self._running)} running"

    def check(self) -> None:
        pass


def stubbed(engine: Engine, seconds: float = 0.0, text: str = "some words of an answer, ") -> Any:
    """Put a stub in the place of an engine's runtime; gives the stub."""
    stub = StubRuntime(engine.text.encode(text), seconds)
    engine._runtime = stub  # has what the engine calls
    return stub
