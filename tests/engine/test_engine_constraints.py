"""Structured output through the engine: noise, forced into a form, with and without drafts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from test_engine_speculation import ask, load

from ninfer.engine import GenerationOptions
from ninfer.errors import RequestError, UsageError
from ninfer.request import GenerationResult, TextDelta

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["red", "blue"]},
    },
    "required": ["name", "count", "kind"],
    "additionalProperties": False,
}
SAMPLED = GenerationOptions(temperature=1.0, presence_penalty=0.0, max_new=200, thinking=False)


def answer(engine, options: GenerationOptions) -> tuple[str, GenerationResult]:
    text, result = "", None
    for event in engine.generate(ask(engine, "Give me one."), options):
        if isinstance(event, TextDelta):
            assert event.channel == "content"
            text += event.text
        else:
            result = event
    assert result is not None
    engine.check()
    return text, result


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(SCHEMA))
    return path


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_an_answer_satisfies_the_schema(
    micro_artifacts: dict[str, Path], schema_file: Path, kind: str
) -> None:
    """H1: enforced, not ignored; with drafts the same tokens as without."""
    plain = load(micro_artifacts[kind])
    drafted = load(micro_artifacts[kind], spec="mtp", draft_tokens=3, adaptive_drafts=False)
    for seed in range(4):
        options = replace(SAMPLED, json_schema=schema_file, seed=seed)
        text, result = answer(plain, options)
        value = json.loads(text)
        assert set(value) == {"name", "count", "kind"}
        assert len(value["name"]) <= 8 and 0 <= value["count"] <= 99
        assert value["kind"] in ("red", "blue")
        assert result.finish_reason == "stop_token"
        assert answer(drafted, options)[1].token_ids == result.token_ids


def test_greedy_and_penalised_answers_are_constrained_too(
    micro_artifacts: dict[str, Path], schema_file: Path
) -> None:
    engine = load(micro_artifacts["dense"])
    for change in ({"greedy": True, "temperature": None}, {"presence_penalty": 1.5}):
        text, _ = answer(engine, replace(SAMPLED, json_schema=schema_file, **change))
        json.loads(text)


def test_others_in_the_same_pass_stay_free(
    micro_artifacts: dict[str, Path], schema_file: Path
) -> None:
    engine = load(micro_artifacts["dense"])
    free = replace(SAMPLED, max_new=30, seed=3)
    *_, alone = engine.generate(ask(engine, "Hi"), free)
    bound = engine.generate(ask(engine, "Hi"), replace(SAMPLED, json_schema=schema_file))
    *_, together = engine.generate(ask(engine, "Hi"), free)
    *_, _ = bound
    assert isinstance(alone, GenerationResult) and isinstance(together, GenerationResult)
    assert together.token_ids == alone.token_ids


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("[1]", UsageError, "must be a JSON object, not list"),
        ("{", UsageError, "not JSON"),
        ('{"type": "nothing"}', RequestError, "nothing"),
        (
            '{"type": "integer", "minimum": 5, "maximum": 4}',
            RequestError,
            "no text satisfies|minimum",
        ),
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused(
    micro_artifacts: dict[str, Path], tmp_path: Path, text: str, error: type, message: str
) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    engine = load(micro_artifacts["dense"])
    with pytest.raises(error, match=message):
        engine.generate(ask(engine, "Hi"), replace(SAMPLED, json_schema=path))
    assert not engine.has_work


def test_a_schema_file_that_is_not_there(micro_artifacts: dict[str, Path]) -> None:
    engine = load(micro_artifacts["dense"])
    with pytest.raises(UsageError, match=r"--json-schema none\.json: No such file"):
        engine.generate(ask(engine, "Hi"), replace(SAMPLED, json_schema=Path("none.json")))
