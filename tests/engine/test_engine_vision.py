"""Generation from prompts with images and videos, on artifacts with random weights."""

import base64
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from PIL import Image

from ninfer.artifact import Artifact
from ninfer.convert import synthesise
from ninfer.engine import Engine, loader
from ninfer.engine.contents import ModelContents
from ninfer.engine.generation_options import GenerationOptions
from ninfer.engine.loader import load_model
from ninfer.engine.options import EngineOptions
from ninfer.engine.residency import Residency
from ninfer.errors import InventoryError, PromptError, UsageError
from ninfer.frontend import SourceRules, parse_conversation
from ninfer.request import GenerationResult, PreparedPrompt

GREEDY = GenerationOptions(max_new=12, greedy=True)


def picture(seed: int, height: int = 64, width: int = 96) -> dict[str, object]:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def options(path: Path, **changes: object) -> EngineOptions:
    base = EngineOptions(path, max_context=512, device="cpu", vision=True)
    return replace(base, **changes)


def prompt_of(engine: Engine, *parts: object) -> PreparedPrompt:
    content = [*parts, {"type": "text", "text": "What is this?"}]
    return engine.prepare(parse_conversation([{"role": "user", "content": content}]))


def tokens(engine: Engine, prompt: PreparedPrompt) -> Sequence[int]:
    *_, result = engine.generate(prompt, GREEDY)
    assert isinstance(result, GenerationResult)
    assert result.usage.prompt_tokens == len(prompt.token_ids)
    return result.token_ids


@pytest.fixture(scope="module", params=["dense", "moe"])
def engine(request: pytest.FixtureRequest, micro_artifacts: dict[str, Path]) -> Engine:
    return Engine.load(options(micro_artifacts[request.param]))


def test_the_answer_depends_on_the_pixels(engine: Engine) -> None:
    """L5: the same text with another picture is another prompt."""
    first, second = (prompt_of(engine, picture(seed)) for seed in (1, 2))
    assert first.token_ids == second.token_ids
    assert tokens(engine, first) != tokens(engine, second)
    assert tokens(engine, first) == tokens(engine, prompt_of(engine, picture(1)))


def test_the_order_of_pictures_matters(engine: Engine) -> None:
    ahead, behind = (prompt_of(engine, picture(a), picture(b)) for a, b in ((1, 2), (2, 1)))
    assert tokens(engine, ahead) != tokens(engine, behind)


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_chunks_smaller_than_a_picture_change_nothing(
    micro_artifacts: dict[str, Path], kind: str
) -> None:
    """L4."""
    answers = []
    for chunk in (128, 512):
        engine = Engine.load(options(micro_artifacts[kind], prefill_chunk=chunk))
        prompt = prompt_of(engine, picture(3, 512, 640))
        assert prompt.runs[0].length == 320
        answers.append(tokens(engine, prompt))
    assert answers[0] == answers[1]


def test_several_answers_to_one_picture(micro_artifacts: dict[str, Path]) -> None:
    """They share what was computed of it, and count positions behind it as one answer does."""
    engine = Engine.load(options(micro_artifacts["dense"], max_concurrency=2, prefix_cache_mib=0))
    prompt = prompt_of(engine, picture(3, 128, 160))
    sampled = GenerationOptions(max_new=12, temperature=1.0, seed=7, logprobs=0)
    expected = []
    for seed in (7, 8, 9):
        *_, result = engine.generate(prompt, replace(sampled, seed=seed))
        assert isinstance(result, GenerationResult)
        expected.append((result.token_ids, result.logprobs))
    for generation, one in zip(engine.generate_many(prompt, sampled, 3), expected, strict=True):
        *_, result = generation
        assert isinstance(result, GenerationResult)
        assert (result.token_ids, result.logprobs) == one
    assert len({ids for ids, _ in expected}) > 1
    engine.check()


def test_a_video_runs(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "clip.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=2)
        stream.height, stream.width, stream.pix_fmt = 64, 64, "bgr0"
        for seed in range(5):
            pixels = np.random.default_rng(seed).integers(0, 256, (64, 64, 3)).astype(np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    part = {"type": "video", "video": str(path)}
    conversation = parse_conversation([{"role": "user", "content": [part]}])
    prompt = engine.prepare(conversation, SourceRules(local_files=True))
    assert [run.length for run in prompt.runs] == [4, 4, 4]
    assert len(tokens(engine, prompt)) == 12


def test_text_is_not_changed_by_a_loaded_tower(micro_artifacts: dict[str, Path]) -> None:
    with_tower, without = (
        Engine.load(options(micro_artifacts["dense"], vision=vision)) for vision in (True, False)
    )
    assert tokens(with_tower, prompt_of(with_tower)) == tokens(without, prompt_of(without))
    with pytest.raises(PromptError, match="--vision"):
        prompt_of(without, picture(1))


def test_local_files_need_permission(engine: Engine) -> None:
    part = {"type": "image", "image": "/etc/hostname"}
    with pytest.raises(PromptError, match="requests must not read"):
        engine.prepare(parse_conversation([{"role": "user", "content": [part]}]))


def test_only_with_the_option_is_the_tower_read(micro_artifacts: dict[str, Path]) -> None:
    for vision in (False, True):
        read: list[str] = []
        load_model(
            options(micro_artifacts["dense"], vision=vision),
            lambda _: Residency(torch.device("cpu"), torch.float32, False),
            lambda name, done, total, read=read: read.append(name),
        )
        assert any(name.startswith("vision/") for name in read) is vision
        assert len(read) == len(set(read))


def test_progress_counts_the_tower(micro_artifacts: dict[str, Path]) -> None:
    steps: list[tuple[int, int]] = []
    Engine.load(
        options(micro_artifacts["moe"]), lambda name, done, total: steps.append((done, total))
    )
    assert steps[-1][0] == steps[-1][1] == steps[0][1]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (None, UsageError, "--vision: this artifact has no vision tower"),
        ({"merge": 4}, InventoryError, r"\(16, 2, 2\), the vision tower \(16, 2, 4\)"),
        ({"depth": 9}, InventoryError, "does not hold parameter 'vision/layers/2/"),
    ],
)
def test_a_tower_that_does_not_fit_is_named(
    micro_artifacts: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, int] | None,
    error: type[Exception],
    message: str,
) -> None:
    original = loader.read_contents

    def changed(artifact: Artifact) -> ModelContents:
        contents = original(artifact)
        tower = None if change is None else replace(contents.config.vision, **change)
        return replace(contents, config=replace(contents.config, vision=tower))

    monkeypatch.setattr(loader, "read_contents", changed)
    with pytest.raises(error, match=message):
        Engine.load(options(micro_artifacts["dense"]))


def test_synthetic_pictures_of_any_seed_give_finite_answers(tmp_path: Path) -> None:
    path = tmp_path / "a.ninfer"
    synthesise(path, like="qwen3.6-27b", scale="micro", seed=5)
    engine = Engine.load(options(path, activations="bf16"))
    assert len(tokens(engine, prompt_of(engine, picture(0)))) > 0
