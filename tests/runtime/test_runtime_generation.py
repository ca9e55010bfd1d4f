"""One sequence through the runtime: prefill cuts, seeds, limits, and what is given back."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ninfer.artifact import open_artifact
from ninfer.errors import CapacityError, ContextError, GenerationError
from ninfer.models import CONFIG_RESOURCE, ModelConfig, resolve_config
from ninfer.models.qwen3_6 import TextWeights, bind_text, recipe_for
from ninfer.request import SamplingParams
from ninfer.runtime import Runtime, RuntimeConfig, pages_for

CONTEXT = 320
SAMPLED = SamplingParams(temperature=1.0, top_p=0.95, top_k=20, presence_penalty=1.5, seed=9)
GREEDY = SamplingParams()
MakeRuntime = Callable[..., Runtime]


def load(path: Path) -> tuple[TextWeights, ModelConfig]:
    with open_artifact(path) as artifact:
        fields = json.loads(artifact.resource(CONFIG_RESOURCE))
        config = resolve_config(artifact.identity, fields)

        def decoded(name: str) -> torch.Tensor:
            stored = artifact.tensor(name)
            if isinstance(stored, torch.Tensor):
                return stored.to(torch.float32)
            return stored.dequantise(torch.float32)

        return bind_text(decoded, config, recipe_for(config, "groupwise-int")), config


@pytest.fixture(scope="module", params=["dense", "moe"])
def runtime_of(request: pytest.FixtureRequest, micro_artifacts: dict[str, Path]) -> MakeRuntime:
    weights, config = load(micro_artifacts[request.param])
    base = RuntimeConfig(
        device=torch.device("cpu"),
        dtype=torch.float32,
        kv_format="bf16",
        max_context=CONTEXT,
        pages=pages_for(CONTEXT),
        state_slots=1,
        prefill_chunk=1024,
    )
    return lambda **changes: Runtime(weights, config, replace(base, **changes))


def prompt_of(length: int) -> list[int]:
    generator = torch.Generator().manual_seed(length)
    return torch.randint(0, 500, (length,), generator=generator).tolist()


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kv_format", ["bf16", "int8", "fp8", "int4"])
def test_prefill_chunks_do_not_change_the_tokens(
    runtime_of: MakeRuntime, sampling: SamplingParams, kv_format: str
) -> None:
    prompt = prompt_of(290)
    runs = [
        list(runtime_of(prefill_chunk=chunk, kv_format=kv_format).generate(prompt, sampling, 24))
        for chunk in (128, 256, 1024)
    ]
    assert runs[0] == runs[1] == runs[2]
    assert len(set(runs[0])) > 4


def test_a_prefill_continues_what_was_generated(runtime_of: MakeRuntime) -> None:
    """Decoding token by token and prefilling the same tokens lead to the same next token."""
    prompt = prompt_of(70)
    tokens = list(runtime_of().generate(prompt, GREEDY, 20))
    (again,) = runtime_of().generate(prompt + tokens[:-1], GREEDY, 1)
    assert again == tokens[-1]


def test_a_second_sequence_starts_from_a_clean_state(runtime_of: MakeRuntime) -> None:
    runtime = runtime_of()
    first = list(runtime.generate(prompt_of(100), SAMPLED, 30))
    list(runtime.generate(prompt_of(200), SAMPLED, 30))
    assert list(runtime.generate(prompt_of(100), SAMPLED, 30)) == first


def test_the_seed_decides_and_nothing_else(runtime_of: MakeRuntime) -> None:
    runtime, prompt = runtime_of(), prompt_of(40)
    runs = {
        seed: list(runtime.generate(prompt, replace(SAMPLED, seed=seed), 20)) for seed in (1, 2)
    }
    assert runs[1] != runs[2]
    assert list(runtime.generate(prompt, replace(SAMPLED, seed=1), 20)) == runs[1]


def test_tokens_stay_below_the_addressable_bound(runtime_of: MakeRuntime) -> None:
    flat = SamplingParams(temperature=2.0, seed=3)
    tokens = list(runtime_of().generate(prompt_of(10), flat, 300))
    assert max(tokens) < 504


@pytest.mark.parametrize("stop_after", [0, 1, 5, 30])
def test_pages_and_slot_come_back_whenever_the_iterator_is_closed(
    runtime_of: MakeRuntime, stop_after: int
) -> None:
    runtime = runtime_of()
    tokens = runtime.generate(prompt_of(100), SAMPLED, 30)
    for _ in range(stop_after):
        next(tokens)
    if 0 < stop_after < 30:
        assert runtime.slots.free_count == 0
        assert runtime.pages.free_count == runtime.pages.capacity - pages_for(100 + stop_after - 1)
    tokens.close()
    assert runtime.slots.free_count == 1
    assert runtime.pages.free_count == runtime.pages.capacity


def test_output_capacity_and_a_prompt_that_is_too_long(runtime_of: MakeRuntime) -> None:
    runtime = runtime_of()
    assert runtime.output_capacity(CONTEXT) == 1
    assert runtime.output_capacity(1) == CONTEXT
    assert len(list(runtime.generate(prompt_of(CONTEXT), GREEDY, 1))) == 1
    with pytest.raises(ContextError, match=r"321 tokens, the context holds 320") as caught:
        runtime.output_capacity(CONTEXT + 1)
    assert (caught.value.prompt_tokens, caught.value.limit) == (CONTEXT + 1, CONTEXT)


def test_a_request_that_can_never_fit_is_refused(runtime_of: MakeRuntime) -> None:
    runtime = runtime_of(pages=2)
    with pytest.raises(CapacityError, match="need 200 cached tokens, --kv-capacity gives 128"):
        next(runtime.generate(prompt_of(200), GREEDY, 1))
    assert (runtime.pages.free_count, runtime.slots.free_count) == (2, 1)


def test_d10_failed_admissions_leave_the_free_counts_alone(runtime_of: MakeRuntime) -> None:
    """D10: nothing that was taken before the failure stays taken."""
    runtime = runtime_of(max_pending=0)
    running = runtime.generate(prompt_of(60), GREEDY, 4)
    first = next(running)
    free = runtime.pages.free_count
    for _ in range(1000):
        with pytest.raises(CapacityError, match="0 requests are waiting already"):
            next(runtime.generate(prompt_of(60), GREEDY, 4))
    assert runtime.pages.free_count == free
    assert [first, *running] == list(runtime.generate(prompt_of(60), GREEDY, 4))
    assert runtime.pages.free_count == runtime.pages.capacity
    runtime.check()


def test_logits_that_are_not_finite_end_the_request_only(micro_artifacts: dict[str, Path]) -> None:
    weights, config = load(micro_artifacts["dense"])
    embedding = weights.embedding.clone()
    embedding[17] = float("nan")
    runtime = Runtime(
        replace(weights, embedding=embedding),
        config,
        RuntimeConfig(torch.device("cpu"), torch.float32, "bf16", 128, 2, 1, 128),
    )
    healthy = list(runtime.generate([1, 2, 3], GREEDY, 4))
    with pytest.raises(GenerationError, match="non-finite logits at position 3"):
        list(runtime.generate([1, 17, 3], GREEDY, 4))
    assert runtime.pages.free_count == 2
    assert list(runtime.generate([1, 2, 3], GREEDY, 4)) == healthy
