"""Codex, Claude Code, OpenCode and Qwen Code at work: tools in two steps, a picture, a session."""

import json
import secrets
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.e2e.agents import AGENTS
from tests.e2e.desk import ERRAND, LOOK, RECALL, SHAPE, Desk
from tests.e2e.library_model import KEY, OBJECT, SEEN, drawn
from tests.e2e.scripted_engine import ScriptedEngine, scripted_server
from tests.server.serving import END, Server

pytestmark = [pytest.mark.e2e, pytest.mark.clients, pytest.mark.timeout(600)]

NAMED = {agent.name: agent for agent in AGENTS}
SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["word", "count"],
    "additionalProperties": False,
}
Served = tuple[Server, ScriptedEngine]


@pytest.fixture(scope="module")
def served(micro_artifacts: dict[str, Path]) -> Iterator[Served]:
    with scripted_server(micro_artifacts["dense"], api_key=(KEY,)) as running:
        yield running


@pytest.fixture(params=NAMED)
def desk(
    request: pytest.FixtureRequest,
    served: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Desk]:
    made = Desk(NAMED[request.param], *served, tmp_path)
    made.connect(monkeypatch)
    yield made
    made.server.settled()
    assert made.engine.refused == []


def test_a_task_in_two_steps_and_a_question_about_it(desk: Desk) -> None:
    """Two calls at once, a third with what they gave, and a session that is gone on with."""
    first, second = secrets.token_hex(4), secrets.token_hex(4)
    (desk.project / "first.txt").write_text(f"the first word is {first}\n")
    (desk.project / "second.txt").write_text(f"the second word is {second}\n")
    report, readings = desk.ask(ERRAND)
    assert report.words == f"Written: {first} {second}."
    assert (desk.project / "answer.txt").read_text() == f"{first} {second}".upper()
    assert len(readings) == 3
    # A cache has all of a step for the next one: what was read and what was written.
    for before, after in pairwise(readings):
        assert after.prompt.token_ids[: len(before.ids)] == before.ids
    assert report.read == sum(len(reading.prompt.token_ids) for reading in readings)
    assert report.written == sum(len(reading.written) for reading in readings)
    report, (reading,) = desk.ask(RECALL, *desk.agent.again)
    assert report.words == f"It was {first}."
    assert f"Written: {first} {second}.{END}" in reading.prompt.text


def test_a_picture_that_a_tool_shows(desk: Desk) -> None:
    drawn(desk.project)
    report, readings = desk.ask(LOOK)
    assert [len(reading.prompt.media) for reading in readings] == [0, 1]
    assert report.words == SEEN


@pytest.mark.parametrize("desk", ["codex", "claude-code", "qwen-code"], indirect=True)
def test_an_answer_in_a_shape(desk: Desk) -> None:
    """By a tool of the client's own, or by a schema that the server enforces."""
    schema = desk.project / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    codex = desk.agent.name == "codex"
    option = ("--output-schema", str(schema)) if codex else ("--json-schema", schema.read_text())
    report, (reading,) = desk.ask(SHAPE, *option)
    assert json.loads(report.words) == OBJECT
    assert (reading.options.program.constraint is not None) == codex


@pytest.fixture(scope="module")
def narrow(micro_artifacts: dict[str, Path]) -> Iterator[Served]:
    """A server whose context does not hold the first prompt of any of them."""
    with scripted_server(micro_artifacts["dense"], context=16384, api_key=(KEY,)) as running:
        yield running


TOO_LONG = {
    "codex": "ran out of room in the model's context window",
    "claude-code": "Prompt is too long",
    "opencode": "ContextOverflowError",
    "qwen-code": "maximum context length is 16384 tokens",
}


@pytest.mark.parametrize("name", TOO_LONG)
def test_a_prompt_that_is_too_long_is_known_as_such(
    name: str, narrow: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each client takes our words for what they mean, and says its own."""
    desk = Desk(NAMED[name], *narrow, tmp_path)
    desk.connect(monkeypatch)
    # It would otherwise go on to shorten a conversation whose beginning alone is too long.
    printed = desk.run(LOOK, fails=True, OPENCODE_DISABLE_AUTOCOMPACT="1")
    assert TOO_LONG[name] in json.dumps(printed)
    assert [one for one in desk.engine.readings if one.prompt.tools] == []
