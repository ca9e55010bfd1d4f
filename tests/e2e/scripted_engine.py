"""A served engine whose answers a function of the prompt writes: the model of a client's task."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ninfer.engine import Engine, EngineOptions, GenerationOptions
from ninfer.request import FinishReason, PreparedPrompt, TokenForcer
from ninfer.runtime import Progress, Runtime, Sequence
from tests.server.serving import Script, Server, serving_engine
from tests.server.stub_runtime import StubRuntime

Author = Callable[[PreparedPrompt], str]


@dataclass
class Reading:
    """What one request gave the model to read, and the ids that it wrote."""

    prompt: PreparedPrompt
    options: GenerationOptions
    written: list[int] = field(default_factory=list)

    @property
    def ids(self) -> tuple[int, ...]:
        return (*self.prompt.token_ids, *self.written)


class _Writing(Script):
    """A script that notes down what is taken of it."""

    def __init__(self, ids: list[int], reading: Reading) -> None:
        super().__init__(ids)
        self._reading = reading

    def advance(self, token_id: int) -> None:
        super().advance(token_id)
        self._reading.written.append(token_id)


class _ForcedRuntime(StubRuntime):
    """Writes what each request's script says, and notes what the request's grammar forbids."""

    def __init__(self, model: Runtime) -> None:
        super().__init__(())
        self.refused: list[str] = []
        self._model = model

    def output_capacity(self, prompt_tokens: int) -> int:
        return self._model.output_capacity(prompt_tokens)

    def step(self) -> list[Progress]:
        return [self._advance(sequence) for sequence in list(self._running)]

    def _advance(self, sequence: Sequence) -> Progress:
        assert sequence.forcer is not None
        token = sequence.forcer.forced()
        assert token is not None, "a script ends with the end of the turn"
        sequence.forcer.advance(token)
        sequence.append(token)
        if sequence.constraint is not None and not sequence.constraint.advance(token):
            self.refused.append(f"token {token}, the answer's number {sequence.generated}")
        finish = None
        if token in sequence.stop_ids:
            finish = FinishReason.STOP_TOKEN
        elif sequence.remaining == 0:
            finish = FinishReason.OUTPUT_LIMIT
        if finish is not None:
            self.cancel(sequence)
        return Progress(sequence, (token,), finish)


class ScriptedEngine:
    """What has been asked of a served engine, and the author of its answers."""

    def __init__(self, engine: Engine) -> None:
        self.author: Author | None = None
        self.readings: list[Reading] = []
        self._text = engine.text
        self._runtime = _ForcedRuntime(engine._runtime)
        engine._runtime = self._runtime  # has what the engine calls

    def install(self, engine: Engine) -> None:
        engine._forcer = self._forcer  # a test's own model

    @property
    def refused(self) -> list[str]:
        """Tokens that the grammar of their request did not allow."""
        return self._runtime.refused

    def _forcer(self, prompt: PreparedPrompt, options: GenerationOptions) -> TokenForcer:
        assert self.author is not None, "a request outside of any task"
        reading = Reading(prompt, options)
        self.readings.append(reading)
        text = self.author(prompt)
        # What a grammar forces it forces in the usual ids.
        is_free = options.program.constraint is None
        return _Writing(self._unusual(text) if is_free else self._text.encode(text), reading)

    def _unusual(self, text: str) -> list[int]:
        """Ids of a text as a model may write it: other ones than its encoding has."""
        pieces = re.findall(r"<[^<>]*>|[^<]{1,3}|<", text)
        return [token for piece in pieces for token in self._text.encode(piece)]


@contextmanager
def scripted_server(
    artifact: Path, *, context: int = 131072, **options: Any
) -> Iterator[tuple[Server, ScriptedEngine]]:
    """Serve an artifact whose model is a script, with room for the prompts of agents."""
    settings = {"device": "cpu", "max_context": context, "max_concurrency": 4, "vision": True}
    engine = Engine.load(EngineOptions(artifact=artifact, **settings))
    scripted = ScriptedEngine(engine)
    with serving_engine(engine, **options) as server:
        scripted.install(engine)
        yield server, scripted
