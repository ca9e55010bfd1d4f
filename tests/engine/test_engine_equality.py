"""Tokens are equal whatever serves them: fixed checks on the trained `tiny` and on a synthetic of
its scale, random ones on smaller ones.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from equality_cases import Scene, checks, random_case

from ninfer.artifact.packaged import path_of_name
from ninfer.convert import synthesise

TRAINED, RANDOM = "tiny", "27b-tiny"
DRAFTERS: Final = ("mtp",)
NAMES: Final = [
    (artifact, name)
    for artifact in (TRAINED, RANDOM)
    for name, _ in checks(Scene(Path(), DRAFTERS))
]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Scene]:
    random = tmp_path_factory.mktemp("equality") / f"{RANDOM}.ninfer"
    synthesise(random, like="qwen3.6-27b", scale="tiny", seed=2)
    return {
        TRAINED: Scene(path_of_name(TRAINED), DRAFTERS, max_new=12),
        RANDOM: Scene(random, DRAFTERS, max_new=6),
    }


@pytest.fixture(scope="module", params=["dense", "moe"])
def small(request: pytest.FixtureRequest, micro_artifacts: dict[str, Path]) -> Scene:
    drafters = {"dense": ("mtp",), "moe": ("mtp", "dflash")}[request.param]
    return Scene(micro_artifacts[request.param], drafters, max_new=24)


@pytest.mark.parametrize(("artifact", "name"), NAMES)
def test_tokens_are_those_of_a_plain_run(
    scenes: dict[str, Scene], artifact: str, name: str
) -> None:
    dict(checks(scenes[artifact]))[name]()


@pytest.mark.parametrize("seed", range(2))
def test_random_settings_change_no_token(small: Scene, seed: int) -> None:
    assert random_case(small, seed)


@pytest.mark.soak
def test_random_settings_change_no_token_in_full(
    small: Scene, record_property: Callable[[str, object], None]
) -> None:
    cases = 200
    answers = sum(random_case(small, 1000 + seed) for seed in range(cases))
    assert answers > cases
    record_property("count", cases)
    record_property("unit", f"random settings, {answers:,} answers equal to plain ones")
