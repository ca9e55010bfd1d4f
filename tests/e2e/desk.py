"""A client at work: connected as its user does it, and a model that sends it about."""

import re
from pathlib import Path
from typing import Any

import pytest

from ninfer.cli import main
from ninfer.request import PreparedPrompt
from tests.e2e.agents import Agent, Report, json_lines
from tests.e2e.foreign import client_environment, run_client
from tests.e2e.library_model import KEY
from tests.e2e.scripted_engine import Reading, ScriptedEngine
from tests.server.scripted_calls import answer, call
from tests.server.serving import Server

ERRAND = "Errand: read first.txt and second.txt, then write both words to answer.txt."
RECALL = "Recall: which was the first word?"
LOOK = "Look: what is in picture.png?"
SHAPE = "Shape: give me a word and a count."
TASKS = (ERRAND, RECALL, LOOK, SHAPE)
# The tools by which clients get an answer in a shape; the others ask for it in the request.
SHAPE_TOOLS = ("StructuredOutput", "structured_output")
FROM_TOOLS = ("<tool_response>", "<|vision_start|>")
WORD = re.compile(r"the (first|second) word is (\w+)")


def open_question(prompt: PreparedPrompt) -> str | None:
    """Which task the model is at; None for what clients ask beside it: titles, memories."""
    place, question = max((prompt.text.rfind(one), one) for one in TASKS)
    _, *turns = prompt.text[place:].split("<|im_start|>user\n")
    # Some clients hand a tool's pictures over in a turn of their own.
    is_last = place >= 0 and all(any(mark in turn for mark in FROM_TOOLS) for turn in turns)
    return question if is_last and prompt.tools else None


class Desk:
    """A connected client in its project, and the model that sends it about."""

    def __init__(self, agent: Agent, server: Server, engine: ScriptedEngine, folder: Path) -> None:
        self.agent, self.engine = agent, engine
        self.home, self.project = folder / "home", folder / "project"
        self.home.mkdir()
        self.project.mkdir()
        self.server = server

    def connect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Write the client's configuration as its user does."""
        monkeypatch.setenv("HOME", str(self.home))
        monkeypatch.setenv("NINFER_API_KEY", KEY)
        assert main(["connect", self.agent.name, self.server.url, "--write"]) == 0

    def run(self, *words: str, fails: bool = False, **variables: str) -> list[Any]:
        """Run the client with these words behind its command; gives the objects that it prints."""
        self.engine.author = self.author
        self.engine.readings.clear()
        environment = client_environment(self.home, NINFER_API_KEY=KEY, **variables)
        printed = run_client(self.agent.program(*words), environment, self.project, fails=fails)
        return json_lines(printed)

    def ask(self, task: str, *options: str) -> tuple[Report, list[Reading]]:
        """Have the client do a task; gives what it says of it and what the model read for it."""
        printed = self.run(*options, task)
        asked = [one for one in self.engine.readings if open_question(one.prompt)]
        return self.agent.report(printed), asked

    def author(self, prompt: PreparedPrompt) -> str:
        """The model: what it writes next depends on what stands behind the last question."""
        question = open_question(prompt)
        text = self._next(prompt, question) if question else answer("Nothing more.")
        return text if prompt.starts_in_reasoning else text.partition("</think>\n\n")[2]

    def _next(self, prompt: PreparedPrompt, question: str) -> str:
        steps = prompt.text.count("<|im_start|>assistant\n", prompt.text.rfind(question)) - 1
        words = dict(WORD.findall(prompt.text))
        if question == RECALL:
            return answer(f"It was {words['first']}.", thought="I have read it.")
        if question == SHAPE:
            return answer("", self._shaped(prompt))
        if question == LOOK:
            if steps == 0:
                return answer("", self.agent.see_picture(self.project / "picture.png"))
            return answer(f"I see {[one.grid for one in prompt.media]}.")
        return self._errand(steps, words)

    def _shaped(self, prompt: PreparedPrompt) -> str:
        """An object in the shape asked for: as a call where the client has a tool for it."""
        names = [tool.get("function", tool)["name"] for tool in prompt.tools]
        for name in SHAPE_TOOLS:
            if name in names:
                return call(name, word="tick", count="3")
        return '{"word": "tick", "count": 3}'

    def _errand(self, steps: int, words: dict[str, str]) -> str:
        if steps == 0:
            files = [self.project / f"{number}.txt" for number in ("first", "second")]
            calls = map(self.agent.read_file, files)
            return answer("I read both.", *calls, thought="Two files, one after\n  the other.")
        both = f"{words['first']} {words['second']}"
        if steps == 1:
            file = self.project / "answer.txt"
            return answer(
                "", self.agent.write_file(file, both.upper()), thought=f"They are {both}."
            )
        return answer(f"Written: {both}.", thought="Done.")
