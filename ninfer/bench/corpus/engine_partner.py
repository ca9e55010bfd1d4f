"""An engine in this process as the partner of a campaign: one request at a time."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from ninfer.artifact import open_artifact
from ninfer.audit import Drafts, Origin, StoredResponse, Timings, TokenCounts
from ninfer.bench.corpus.asked import command_of, kept_request
from ninfer.bench.corpus.fixtures import Fixture
from ninfer.bench.corpus.plan import Ask
from ninfer.bench.corpus.time_line import TimeLine
from ninfer.bench.machine import this_machine
from ninfer.engine import Engine, EngineOptions, EngineSnapshot, GenerationOptions
from ninfer.engine.generation_options import template_options
from ninfer.engine.loader import read_model
from ninfer.errors import GenerationError, RequestError, UsageError
from ninfer.frontend import Frontend, parse_conversation
from ninfer.request import Conversation, GenerationResult, TextDelta

Progress = Callable[[str, int, int], None]


class EnginePartner:
    """Answers with an engine that it loads and closes."""

    def __init__(
        self, options: EngineOptions, model: str, target: Sequence[str], progress: Progress
    ) -> None:
        """`model` is what the artifact is known by, `target` how the command line names it."""
        self._engine = Engine.load(options, progress)
        self._target = target
        device = str(self._engine.facts.device)
        machine = this_machine("cpu" if device == "cpu" else device)
        hardware = f"{machine.device}, {machine.threads} of {machine.cores} cores"
        self._origin: Final = Origin(
            server=options.artifact.name,
            model=model,
            software=f"ninfer {machine.ninfer}, torch {machine.torch}",
            revision=machine.revision,
            hardware=hardware,
        )

    def close(self) -> None:
        """End the engine."""
        self._engine.close()

    def answer(self, ask: Ask, mode: str) -> StoredResponse:
        """The response of the engine, or what kept it from one."""
        generation = generation_of(ask)
        before = self._engine.snapshot()
        texts = {"content": "", "reasoning": ""}
        result: GenerationResult | None = None
        error = None
        line = TimeLine()
        started = time.perf_counter()
        try:
            prompt = self._engine.prepare(conversation_of(ask.fixture, generation))
            for event in self._engine.generate(prompt, generation):
                if isinstance(event, TextDelta):
                    texts[event.channel] += event.text
                    line.add(len(event.text))
                elif isinstance(event, GenerationResult):
                    result = event
        except (RequestError, GenerationError) as failure:
            error = str(failure)
        total = time.perf_counter() - started
        request = {"messages": list(ask.fixture.messages), "max_new": ask.max_new}
        request |= {"thinking": ask.fixture.thinking, **ask.drawing}
        return StoredResponse(
            fixture=ask.fixture.name,
            category=ask.fixture.category,
            mode=mode,
            sampling=ask.sampling,
            seed=ask.seed,
            request=kept_request(request),
            contract=ask.fixture.contract,
            text=texts["content"],
            reasoning=texts["reasoning"],
            tool_calls=tuple(asdict(call) for call in result.tool_calls) if result else (),
            finish_reason=str(result.finish_reason) if result else "error",
            stop=result.stop_reason if result else None,
            error=error,
            token_ids=result.token_ids if result else None,
            usage=_counts(result),
            timings=_timings(result, total, line.first),
            drafts=_drafts(before, self._engine.snapshot()),
            pieces=line.points,
            origin=self._origin,
            command=command_of(self._target, ask, mode),
        )


def generation_of(ask: Ask) -> GenerationOptions:
    """The options of one answer; what the corpus does not set is off, whatever the preset is."""
    drawing: dict[str, Any] = {"presence_penalty": 0.0, "frequency_penalty": 0.0, **ask.drawing}
    return GenerationOptions(
        max_new=ask.max_new, thinking=ask.fixture.thinking, seed=ask.seed, **drawing
    )


def conversation_of(fixture: Fixture, generation: GenerationOptions) -> Conversation:
    """The messages of a fixture, checked; raises PromptError."""
    return parse_conversation(list(fixture.messages), None, template_options(generation))


def needed_context(options: EngineOptions, asks: Iterable[Ask]) -> tuple[int, str]:
    """Tokens that the longest ask may take with its answer, and its fixture.

    Every prompt is rendered once, so that one that cannot be asked ends the run at once. Raises
    UsageError naming the fixture.
    """
    frontend = _frontend(options)
    most, longest = 0, ""
    for ask in {ask.fixture.name: ask for ask in asks}.values():
        try:
            prompt = frontend.prepare(conversation_of(ask.fixture, generation_of(ask)))
        except RequestError as error:
            raise UsageError(f"fixture {ask.fixture.name}: {error}") from None
        tokens = len(prompt.token_ids) + ask.max_new
        if tokens > most:
            most, longest = tokens, ask.fixture.name
    return most, longest


def _frontend(options: EngineOptions) -> Frontend:
    return read_model(open_artifact(options.artifact), vision=options.vision)[1]


def _counts(result: GenerationResult | None) -> TokenCounts:
    if result is None:
        return TokenCounts()
    usage = result.usage
    return TokenCounts(
        usage.prompt_tokens, usage.completion_tokens, usage.reasoning_tokens, usage.cached_tokens
    )


def _timings(result: GenerationResult | None, total: float, first: float | None) -> Timings:
    if result is None:
        return Timings(total, first)
    return Timings(total, first, result.prefill_seconds, result.decode_seconds)


def _drafts(before: EngineSnapshot, after: EngineSnapshot) -> Drafts | None:
    """What the drafter did between two readings; None without one."""
    drafted = after.spec_drafted - before.spec_drafted
    rounds = after.spec_rounds - before.spec_rounds
    if not rounds:
        return None
    old = (*before.spec_accepted_at, *(0,) * len(after.spec_accepted_at))
    at = tuple(new - one for new, one in zip(after.spec_accepted_at, old, strict=False))
    return Drafts(rounds, drafted, after.spec_accepted - before.spec_accepted, at)
