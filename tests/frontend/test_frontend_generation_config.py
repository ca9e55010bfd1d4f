"""How to sample by default, as generation_config.json says it."""

import json

import pytest

from ninfer.convert import build_tokenizer
from ninfer.errors import ArtifactError
from ninfer.frontend import Frontend
from ninfer.frontend.generation_config import GENERATION_CONFIG, sampling_defaults
from ninfer.request import SamplingParams

PUBLISHED = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20}


def read(values: object) -> SamplingParams:
    return sampling_defaults(json.dumps(values).encode())


def test_sampling_is_greedy_unless_the_file_says_otherwise():
    greedy = SamplingParams(temperature=0.0)
    assert read({}) == read({"do_sample": False}) == read([]) == greedy
    assert read({**PUBLISHED, "do_sample": False}) == greedy


def test_members_have_their_hugging_face_names():
    assert read(PUBLISHED) == SamplingParams(temperature=0.6, top_p=0.95, top_k=20)
    others = {"min_p": 0.1, "presence_penalty": 1.5, "frequency_penalty": -0.5}
    others["repetition_penalty"] = 1.05
    assert read({"do_sample": True, **others}) == SamplingParams(temperature=1.0, **others)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"do_sample": "yes"}, "do_sample is 'yes', must be true or false"),
        ({"temperature": -0.1}, "temperature is -0.1, must be between 0 and 2"),
        ({"temperature": True}, "temperature is True"),
        ({"temperature": None}, "temperature is None"),
        ({"top_p": 1.5}, "top_p is 1.5, must be between 0 and 1"),
        ({"top_k": 2.5}, "top_k is 2.5, must be a whole number from 0"),
        ({"top_k": -1}, "top_k is -1"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0, must be between 0 and 10 and not 0"),
        ({"top_p": float("nan")}, "top_p|not JSON"),
        ({"presence_penalty": 3}, "presence_penalty is 3, must be between -2 and 2"),
    ],
)
def test_a_bad_value_is_named(change, message):
    with pytest.raises(ArtifactError, match=f"generation_config.json: {message}"):
        read({**PUBLISHED, **change})


def test_the_frontend_has_what_its_resources_say():
    resources = build_tokenizer(700)
    assert Frontend.from_resources(resources).sampling == SamplingParams()
    resources[GENERATION_CONFIG] = json.dumps(PUBLISHED).encode()
    assert Frontend.from_resources(resources).sampling == read(PUBLISHED)
