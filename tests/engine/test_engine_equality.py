"""Tokens are equal whatever serves them: fixed checks on a synthetic of scale `tiny`, random ones
on smaller ones.

Another artifact takes part by a line in ARTIFACTS.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from equality_cases import Scene, checks, random_case

from ninfer.convert import synthesise

# Name -> model, scale and drafters of what the fixed checks run over.
ARTIFACTS: Final = {"27b-tiny": ("qwen3.6-27b", "tiny", ("mtp",))}
NAMES: Final = [
    (artifact, name)
    for artifact, (_, _, drafters) in ARTIFACTS.items()
    for name, _ in checks(Scene(Path(), drafters))
]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Scene]:
    folder, found = tmp_path_factory.mktemp("equality"), {}
    for name, (like, scale, drafters) in ARTIFACTS.items():
        synthesise(folder / f"{name}.ninfer", like=like, scale=scale, seed=2)
        found[name] = Scene(folder / f"{name}.ninfer", drafters, max_new=6)
    return found


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
