"""From what an engine emits to the answer that graders see, through the real text side."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from ninfer.artifact import open_artifact
from ninfer.cli.eval_engine import EngineAnswers, artifact_digest, frontend_of, longest_item
from ninfer.engine import EngineOptions, GenerationOptions
from ninfer.engine.session import Session
from ninfer.errors import PromptError
from ninfer.evals import Answer, Item
from ninfer.evals.graders import grade
from ninfer.evals.suite import parse_item
from ninfer.frontend import Frontend
from ninfer.request import (
    Conversation,
    FinishReason,
    GenerationEvent,
    PreparedPrompt,
    SamplingParams,
)
from ninfer.runtime import Progress, Sequence

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        },
    },
}
CALL = (
    "<tool_call>\n<function=weather>\n<parameter=city>\n12\n</parameter>\n"
    "<parameter=days>\n12\n</parameter>\n</function>\n</tool_call>"
)
GRADE = {
    "kind": "tool_calls",
    "calls": [{"name": "weather", "arguments": {"city": "12", "days": 12}}],
}


class Scripted:
    """An engine that says what it is told to, token by token."""

    def __init__(self, frontend: Frontend, text: str) -> None:
        self.frontend, self.text = frontend, text
        self.asked: list[GenerationOptions] = []

    def prepare(self, conversation: Conversation) -> PreparedPrompt:
        return self.frontend.prepare(conversation)

    async def generate(
        self, prompt: PreparedPrompt, options: GenerationOptions
    ) -> AsyncGenerator[GenerationEvent, None]:
        self.asked.append(options)
        parser = self.frontend.new_output_parser(prompt)
        session = Session(parser, len(prompt.token_ids), FinishReason.OUTPUT_LIMIT)
        sequence = Sequence([], 0, SamplingParams(), [], 0)
        *tokens, last = [*self.frontend.tokenizer.encode(self.text), self.frontend.stop_ids[0]]
        for token in tokens:
            for event in session.feed(Progress(sequence, (token,))):
                yield event
        for event in session.feed(Progress(sequence, (last,), FinishReason.STOP_TOKEN)):
            yield event


@pytest.fixture(scope="module")
def options(micro_artifacts: dict[str, Path]) -> EngineOptions:
    return EngineOptions(micro_artifacts["dense"], device="cpu")


@pytest.fixture(scope="module")
def frontend(options: EngineOptions) -> Frontend:
    return frontend_of(open_artifact(options.artifact), options)


def item_of(**changes: Any) -> Item:
    values = {
        "id": "tools/0",
        "task": "tools",
        "messages": [{"role": "user", "content": "Will it rain?"}],
        "tools": [TOOL],
        "max_new": 64,
        "grade": GRADE,
    }
    return parse_item({**values, **changes}, "item")


def ask(frontend: Frontend, text: str, item: Item) -> tuple[Answer, GenerationOptions]:
    engine = Scripted(frontend, text)
    answer = asyncio.run(EngineAnswers(engine)(item))
    return answer, engine.asked[0]


def test_calls_are_read_and_typed(frontend: Frontend) -> None:
    item = item_of()
    answer, _ = ask(frontend, f"Let me see.\n\n{CALL}", item)
    assert [(c.name, dict(c.arguments)) for c in answer.tool_calls] == [
        ("weather", {"city": "12", "days": 12})
    ]
    assert answer.content.strip() == "Let me see."
    assert grade(item.grader, answer) == ()
    twice, _ = ask(frontend, f"{CALL}\n{CALL}", item)
    assert len(twice.tool_calls) == 2
    assert grade(item.grader, twice) == ("2 calls (weather, weather) in place of 1",)


def test_without_tools_tags_are_text(frontend: Frontend) -> None:
    answer, _ = ask(frontend, CALL, item_of(tools=[]))
    assert answer.tool_calls == () and answer.content == CALL


def test_thinking_is_no_content(frontend: Frontend) -> None:
    item = item_of(thinking=True, tools=[], grade={"kind": "exact", "answer": "7"})
    answer, asked = ask(frontend, "It is 8.\n</think>\n\n7", item)
    assert (answer.reasoning, answer.content) == ("It is 8.", "7")
    assert answer.reasoning_tokens > 0 and answer.is_natural
    assert grade(item.grader, answer) == ()
    assert asked.thinking and asked.max_new == 64


def test_decoding_is_greedy_without_penalties(frontend: Frontend) -> None:
    _, asked = ask(frontend, "7", item_of())
    assert (asked.temperature, asked.presence_penalty, asked.frequency_penalty) == (0.0, 0.0, 0.0)


def test_the_longest_item_is_found(frontend: Frontend) -> None:
    short, long = item_of(id="a", max_new=5), item_of(id="b", max_new=6)
    tokens, name = longest_item(frontend, [short, long, short])
    assert name == "b"
    assert tokens == longest_item(frontend, [short])[0] + 1
    broken = item_of(id="c", messages=[{"role": "tool", "content": "x", "tool_call_id": "1"}])
    with pytest.raises(PromptError, match="item c: the first turn is a tool result"):
        longest_item(frontend, [short, broken])


def test_the_digest_is_that_of_the_file(options: EngineOptions, tmp_path: Path) -> None:
    copy = tmp_path / "copy.ninfer"
    data = options.artifact.read_bytes()
    copy.write_bytes(data)
    assert artifact_digest(EngineOptions(copy)) == artifact_digest(options)
    copy.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert artifact_digest(EngineOptions(copy)) != artifact_digest(options)
