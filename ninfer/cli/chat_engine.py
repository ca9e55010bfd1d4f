"""The engine in this process as a partner of the chat."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

from ninfer.cli.output import byte_progress
from ninfer.client import (
    AnswerEnd,
    AnswerText,
    ChatEvent,
    ChatOptions,
    FunctionCall,
    ReasoningText,
    TokenUsage,
    given_values,
)
from ninfer.engine import AsyncEngine, Engine, EngineOptions, GenerationOptions
from ninfer.engine.generation_options import check_generation, template_options
from ninfer.frontend import parse_conversation
from ninfer.request import (
    GenerationEvent,
    GenerationResult,
    PreparedPrompt,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    Usage,
)


@contextmanager
def engine_partner(engine: EngineOptions, chat: ChatOptions) -> Iterator["EnginePartner"]:
    """Load the artifact; the engine is closed at the end. Raises what Engine.load raises."""
    values = {"max_new": engine.max_context, **given_values(chat)}
    generation = GenerationOptions(thinking=chat.thinking, **values)
    check_generation(generation)
    with byte_progress("loading") as progress:
        loaded = Engine.load(engine, progress)
    with asyncio.Runner() as runner:
        served = AsyncEngine(loaded)
        try:
            yield EnginePartner(engine.artifact.name, served, generation, runner)
        finally:
            runner.run(served.close())
            loaded.close()


class EnginePartner:
    """Answers from the engine's own thread, so that Ctrl-C never cuts through a step."""

    def __init__(
        self, name: str, engine: AsyncEngine, generation: GenerationOptions, runner: asyncio.Runner
    ) -> None:
        self.name = name
        self._engine = engine
        self._generation = generation
        self._runner = runner

    def answer(self, messages: Sequence[dict[str, Any]], show: Callable[[ChatEvent], None]) -> None:
        """Show the events of one answer. Raises as AsyncEngine does, and KeyboardInterrupt."""
        conversation = parse_conversation(list(messages), None, template_options(self._generation))
        self._runner.run(self._consume(self._engine.prepare(conversation), show))

    async def _consume(self, prompt: PreparedPrompt, show: Callable[[ChatEvent], None]) -> None:
        arguments: dict[int, str] = {}
        async with aclosing(self._engine.generate(prompt, self._generation)) as events:
            async for event in events:
                if isinstance(event, ToolCallArguments):
                    arguments[event.index] = arguments.get(event.index, "") + event.fragment
                for shown in _translate(event, arguments):
                    show(shown)


def _translate(event: GenerationEvent, arguments: dict[int, str]) -> Iterator[ChatEvent]:
    match event:
        case TextDelta(channel="reasoning", text=text):
            yield ReasoningText(text)
        case TextDelta(text=text):
            yield AnswerText(text)
        case ToolCallEnd(index, call):
            yield FunctionCall(call.id or f"call_{index}", call.name, arguments.get(index, "{}"))
        case GenerationResult():
            yield AnswerEnd(str(event.finish_reason), _counts(event.usage))


def _counts(usage: Usage) -> TokenUsage:
    return TokenUsage(
        usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.reasoning_tokens
    )
