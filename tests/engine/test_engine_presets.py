"""Sampling values that a request does not give: the authors' for registered models, else the
file's own."""

from dataclasses import replace
from pathlib import Path

import pytest

from ninfer.artifact import Identity
from ninfer.engine import Engine
from ninfer.engine.generation_options import GenerationOptions
from ninfer.engine.loader import LoadedModel, load_model
from ninfer.engine.options import EngineOptions
from ninfer.engine.resolve import resolve
from ninfer.models.qwen3_6 import sampling_preset
from ninfer.request import SamplingParams

OWN = SamplingParams(temperature=0.8, top_p=0.95, top_k=20)


@pytest.fixture
def model(micro_artifacts: dict[str, Path]) -> LoadedModel:
    options = EngineOptions(artifact=micro_artifacts["dense"], device="cpu", max_context=128)
    return load_model(options, lambda s: resolve(options, s).residency, lambda *_: None)


@pytest.mark.parametrize("thinking", [True, False])
def test_only_registered_models_have_the_preset_of_their_family(
    model: LoadedModel, thinking: bool
) -> None:
    assert model.sampling(thinking=thinking) == OWN
    published = replace(model, identity=Identity("qwen3.6-27b", "groupwise-int"))
    expected = sampling_preset(model.config, thinking=thinking)
    assert published.sampling(thinking=thinking) == expected != OWN
    alike = replace(model, identity=Identity("qwen3.6-27b-mine", "groupwise-int"))
    assert alike.sampling(thinking=thinking) == OWN


def test_given_values_win(micro_artifacts: dict[str, Path]) -> None:
    path = micro_artifacts["moe"]
    engine = Engine.load(EngineOptions(artifact=path, device="cpu", max_context=128))
    assert engine.sampling_params(GenerationOptions()) == OWN
    given = GenerationOptions(temperature=0.3, presence_penalty=0.5, seed=4)
    expected = replace(OWN, temperature=0.3, presence_penalty=0.5, seed=4)
    assert engine.sampling_params(given) == expected
    assert engine.sampling_params(GenerationOptions(greedy=True)).temperature == 0
