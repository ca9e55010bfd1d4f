"""The questions of the demo: held out, as the recipe writes them, and wrong answers fail."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from recipes.tiny import demo_files
from recipes.tiny.scene_shapes import draw
from tools.demo import QUESTIONS, ask

SUM, PICTURE, TOOL = QUESTIONS
CALL = {"name": "get_weather", "arguments": {"city": "Vienna"}}


def test_files_are_as_the_recipe_writes_them():
    values = {name: json.loads((demo_files.FOLDER / name).read_text()) for name, _ in values_of()}
    assert values == dict(values_of())
    picture = Image.open(io.BytesIO((demo_files.FOLDER / demo_files.PICTURE).read_bytes()))
    assert np.array_equal(np.asarray(picture), draw(demo_files.picture()))


def values_of():
    return list(demo_files.files())


def test_questions_are_those_that_training_left_out():
    question, result = demo_files.sum_question()
    assert question in SUM.options and SUM.wanted == str(result)
    assert demo_files.weather_request() == "What is the weather in Vienna?"
    assert PICTURE.wanted == str(demo_files.LOOKS.count(demo_files.LOOKS[0]))


@pytest.mark.parametrize(
    ("question", "answers"),
    [
        (SUM, ["17481", "9117 + 8364 = 17481", "17481.\n"]),
        (PICTURE, ["3\n"]),
        (TOOL, [json.dumps({"id": "a", "type": "function", "function": CALL}) + "\n"]),
    ],
)
def test_right_answers_are_taken(question, answers):
    assert all(map(question.is_right, answers))


def called(**change):
    return json.dumps({"function": {**CALL, **change}})


@pytest.mark.parametrize(
    ("question", "answers"),
    [
        (SUM, ["", "17482", "9117 + 8364", "17481 or 17482", "174810"]),
        (PICTURE, ["", "4", "33", "3 circles"]),
        (
            TOOL,
            [
                *("", "It is sunny in Vienna.", "[]", "3", '{"function": 3}', "{}"),
                called(name="set_timer"),
                called(arguments={"city": "Vienna", "unit": "celsius"}),
                called(arguments={"city": "Oslo"}),
                f"{called()}\n{called()}",
                f"Sure.\n{called()}",
            ],
        ),
    ],
)
def test_wrong_answers_are_not(question, answers):
    assert not any(map(question.is_right, answers))


def test_a_program_that_fails_is_wrong(tmp_path, capsys):
    assert not ask(SUM, str(tmp_path / "missing.ninfer"))
    assert "WRONG: 17481 was expected" in capsys.readouterr().out
