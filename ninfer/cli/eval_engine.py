"""An engine that answers the items of a suite: context for the longest, greedy, several at once."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from ninfer.artifact import Artifact, open_artifact
from ninfer.artifact.digest import file_sha256
from ninfer.cli.arguments import read_text
from ninfer.cli.output import byte_progress, item_progress
from ninfer.engine import AsyncEngine, Engine, EngineOptions, GenerationOptions
from ninfer.engine.generation_options import template_options
from ninfer.engine.loader import read_config, read_model
from ninfer.errors import PromptError, RequestError, UsageError
from ninfer.evals import Answer, Item, Outcome, run_items
from ninfer.evals.acceptance import DraftCounts, TaskAcceptance
from ninfer.frontend import Frontend, parse_conversation
from ninfer.request import Conversation, GenerationResult, TextDelta


def artifact_digest(options: EngineOptions) -> str:
    """SHA-256 of the artifact's file, or over those of all its parts."""
    artifact = open_artifact(options.artifact)
    parts = [options.artifact.with_name(span.path) for span in artifact.files if span.path]
    with byte_progress("hashing") as progress:
        digests = [file_sha256(path, progress) for path in (options.artifact, *parts)]
    return hashlib.sha256("".join(digests).encode()).hexdigest() if parts else digests[0]


def load_engine(options: EngineOptions, items: Sequence[Item], *, fitting: bool) -> Engine:
    """An engine for these items; with `fitting` its context is what the longest may need.

    Every prompt is rendered once before, so that one that cannot be asked ends the run at once.
    Raises PromptError naming the item, UsageError for media without a vision tower, and whatever
    Engine.load raises.
    """
    artifact = open_artifact(options.artifact)
    if options.vision and read_config(artifact).vision is None:
        raise UsageError(
            f"{options.artifact}: has no vision tower, and the suite shows images or videos; "
            "add --text-only"
        )
    tokens, longest = longest_item(frontend_of(artifact, options), items)
    if fitting:
        options = replace(options, max_context=tokens)
    elif tokens > options.max_context:
        raise UsageError(
            f"--max-context {options.max_context}: item {longest} may need {tokens} tokens"
        )
    with byte_progress("loading") as progress:
        return Engine.load(options, progress)


def frontend_of(artifact: Artifact, options: EngineOptions) -> Frontend:
    """The text side alone, as the engine will have it."""
    path = options.chat_template
    template = read_text("--chat-template", path) if path else None
    return read_model(artifact, chat_template=template, vision=options.vision)[1]


def longest_item(frontend: Frontend, items: Iterable[Item]) -> tuple[int, str]:
    """Tokens that the longest item may take with its answer, and its id."""
    most, longest = 0, ""
    for item in items:
        try:
            prompt = frontend.prepare(conversation_of(item))
        except RequestError as error:
            raise PromptError(f"item {item.id}: {error}") from None
        tokens = len(prompt.token_ids) + item.max_new
        if tokens > most:
            most, longest = tokens, item.id
    return most, longest


def conversation_of(item: Item) -> Conversation:
    """The messages and tools of an item, checked; raises PromptError."""
    options = template_options(generation_of(item))
    return parse_conversation(list(item.messages), list(item.tools) or None, options)


def generation_of(item: Item) -> GenerationOptions:
    """Greedy decoding without penalties, whatever the model's preset is."""
    return GenerationOptions(
        max_new=item.max_new,
        thinking=item.thinking,
        temperature=0.0,
        presence_penalty=0.0,
        frequency_penalty=0.0,
    )


def answer_items(
    engine: Engine,
    items: Sequence[Item],
    on_outcome: Callable[[Outcome], None],
    *,
    title: str,
    concurrency: int,
) -> None:
    """Answer and grade items on an inference thread of their own; see run_items."""

    async def run() -> None:
        served = AsyncEngine(engine)
        try:
            answers = EngineAnswers(served)
            await run_items(items, answers, take, concurrency=concurrency)
        finally:
            await served.close()

    with item_progress(title, len(items)) as advance:

        def take(outcome: Outcome) -> None:
            on_outcome(outcome)
            advance()

        asyncio.run(run())


def task_acceptance(
    engine: Engine, task: str, items: Sequence[Item], concurrency: int
) -> TaskAcceptance:
    """Answer the items of one task, and count what became of the drafts."""
    tokens = 0

    def count(outcome: Outcome) -> None:
        nonlocal tokens
        tokens += len(outcome.answer.token_ids) - 1

    before = _counts(engine, task)
    answer_items(engine, items, count, title=task, concurrency=concurrency)
    return replace(_counts(engine, task).plus(before, -1), tokens=tokens)


def _counts(engine: Engine, task: str) -> TaskAcceptance:
    counters = engine.speculation_counters()
    assert counters is not None
    sources = {
        name: DraftCounts(tuple(counts.judged), tuple(counts.accepted))
        for name, counts in engine.draft_positions().items()
    }
    return TaskAcceptance(task, passes=counters.rounds + counters.fallback_steps, sources=sources)


class EngineAnswers:
    """Asks an engine; as many at once as callers wait."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine: Final = engine

    async def __call__(self, item: Item) -> Answer:
        """The answer to an item; raises as AsyncEngine.generate does."""
        start = time.perf_counter()
        prompt = self._engine.prepare(conversation_of(item))
        texts = {"content": "", "reasoning": ""}
        result: GenerationResult | None = None
        async with aclosing(self._engine.generate(prompt, generation_of(item))) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    texts[event.channel] += event.text
                elif isinstance(event, GenerationResult):
                    result = event
        assert result is not None
        return Answer(
            content=texts["content"],
            reasoning=texts["reasoning"],
            tool_calls=result.tool_calls,
            finish_reason=result.finish_reason,
            prompt_tokens=result.usage.prompt_tokens,
            reasoning_tokens=result.usage.reasoning_tokens,
            token_ids=result.token_ids,
            seconds=time.perf_counter() - start,
        )
