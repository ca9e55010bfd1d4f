"""Option checks: every refusal names the option and the value."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ninfer.engine.options import (
    EngineOptions,
    GenerationOptions,
    RunOptions,
    check_engine,
    check_generation,
    check_run,
    template_options,
)
from ninfer.engine.residency import Residency
from ninfer.engine.resolve import parameter_count, resolve_device, resolve_runtime
from ninfer.errors import UnsupportedError, UsageError
from ninfer.models.config import ModelConfig
from ninfer.models.qwen3_6.sizes import DENSE_27B, MOE_35B

ENGINE = EngineOptions(artifact=Path("a.ninfer"))
CPU = Residency(torch.device("cpu"), torch.float32, decoded=True)


def test_the_defaults_pass() -> None:
    check_engine(ENGINE)
    check_generation(GenerationOptions())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_context": 0}, "--max-context 0: must be positive"),
        ({"prefill_chunk": 100}, "--prefill-chunk 100: must be a multiple of 128"),
        ({"prefill_chunk": 0}, "--prefill-chunk 0"),
        ({"prefill_chunk": -128}, "--prefill-chunk -128"),
        ({"kv_capacity": 2047}, "--kv-capacity 2047: must be at least --max-context"),
        ({"kv_dtype": "fp7"}, "--kv-dtype fp7: must be one of bf16, int8"),
        ({"device": "gpu"}, "--device gpu: must be a device number, cpu or auto"),
        ({"device": "-1"}, "--device -1"),
        ({"device": "9" * 5000}, "--device 9"),
        ({"weights": "all"}, "--weights all: must be one of"),
        ({"activations": "fp8"}, "--activations fp8: must be one of"),
    ],
)
def test_a_bad_engine_value_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_engine(replace(ENGINE, **change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spec": "mtp"}, "--spec mtp: not available"),
        ({"draft_tokens": 3}, "--draft-tokens 3: not available"),
        ({"lm_head_draft": True}, "--lm-head-draft: not available"),
        ({"kv_dtype": "fp8"}, "--kv-dtype fp8: not available"),
        ({"kv_dtype": "nvfp4"}, "--kv-dtype nvfp4: not available"),
        ({"kv_dtype": "k8v4"}, "--kv-dtype k8v4: not available"),
    ],
)
def test_an_engine_option_of_later_versions_is_refused_by_name(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        check_engine(replace(ENGINE, **change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"thinking_budget": 10}, "--thinking-budget 10: not available"),
        ({"json": True}, "--json: not available"),
        ({"json_schema": Path("s.json")}, "--json-schema s.json: not available"),
    ],
)
def test_a_generation_option_of_later_versions_is_refused_by_name(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        check_generation(replace(GenerationOptions(), **change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_new": 0}, "--max-new 0: must be positive"),
        ({"temperature": -0.1}, "--temperature -0.1: must be between 0 and 2"),
        ({"temperature": 2.5}, "--temperature 2.5"),
        ({"temperature": float("nan")}, "--temperature nan"),
        ({"temperature": float("inf")}, "--temperature inf"),
        ({"top_p": 1.01}, "--top-p 1.01: must be between 0 and 1"),
        ({"min_p": -1.0}, "--min-p -1.0"),
        ({"top_k": -2}, r"--top-k -2: must be between 0 \(all\)"),
        ({"top_k": 10**24}, "--top-k 1000000000000000000000000: must be"),
        ({"presence_penalty": 3.0}, "--presence-penalty 3.0: must be between -2 and 2"),
        ({"frequency_penalty": -2.1}, "--frequency-penalty -2.1"),
        ({"seed": -1}, "--seed -1: must be between 0 and"),
        ({"seed": 2**64}, "--seed 18446744073709551616"),
        ({"greedy": True, "temperature": 0.5}, "--greedy contradicts --temperature 0.5"),
        ({"stop": ("",)}, "need a text that is not empty"),
        ({"reasoning_effort": "huge"}, "--reasoning-effort huge: must be one of"),
    ],
)
def test_a_bad_generation_value_is_named(change: dict[str, Any], message: str) -> None:
    """E11: a temperature of NaN, infinity or below zero never reaches the sampler."""
    with pytest.raises(UsageError, match=message):
        check_generation(replace(GenerationOptions(), **change))


@pytest.mark.parametrize(
    ("change", "thinking", "effort"),
    [
        ({}, True, None),
        ({"thinking": False}, False, None),
        ({"reasoning_effort": "low"}, True, "low"),
        ({"reasoning_effort": "none"}, False, None),
        ({"thinking": False, "reasoning_effort": "low"}, False, None),
    ],
)
def test_effort_none_is_thinking_off(
    change: dict[str, Any], thinking: bool, effort: str | None
) -> None:
    """B7: asking for no effort works instead of being ignored."""
    template = template_options(replace(GenerationOptions(), **change))
    assert (template.enable_thinking, template.reasoning_effort) == (thinking, effort)


def test_exactly_one_source_of_messages() -> None:
    check_run(RunOptions(prompt=""))
    for both in ({}, {"prompt": "a", "messages": Path("m.json")}):
        with pytest.raises(UsageError, match="exactly one of --prompt TEXT and --messages FILE"):
            check_run(RunOptions(**both))


@pytest.mark.parametrize("options", [EngineOptions, GenerationOptions, RunOptions])
def test_every_option_has_help(options: type[Any]) -> None:
    without = [s.name for s in fields(options) if "help" not in s.metadata]
    assert without == (["artifact"] if options is EngineOptions else [])


def test_the_models_own_limit_bounds_the_context() -> None:
    resolve_runtime(replace(ENGINE, max_context=262_144), DENSE_27B, CPU)
    with pytest.raises(UsageError, match="--max-context 262145: the model's limit is 262144"):
        resolve_runtime(replace(ENGINE, max_context=262_145), DENSE_27B, CPU)


def test_capacity_that_one_sequence_cannot_use_is_refused() -> None:
    options = replace(ENGINE, max_context=100, kv_capacity=128)
    assert resolve_runtime(options, DENSE_27B, CPU).pages == 2
    with pytest.raises(UsageError, match="--kv-capacity 129: one sequence can use at most 128"):
        resolve_runtime(replace(options, kv_capacity=129), DENSE_27B, CPU)


def test_caches_that_cannot_fit_are_refused_with_the_numbers() -> None:
    wide = replace(DENSE_27B, text=replace(DENSE_27B.text, context=10**12))
    options = replace(ENGINE, max_context=10**11)
    with pytest.raises(UsageError, match=r"the caches take 6,\S+ bytes and \S+ are free on cpu"):
        resolve_runtime(options, wide, CPU)


def test_a_device_that_does_not_exist_is_named() -> None:
    with pytest.raises(UsageError, match="--device 99: this machine has"):
        resolve_device("99")
    assert resolve_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(
    ("config", "billions"), [(DENSE_27B, 26.9), (MOE_35B, 34.7)], ids=["27b", "35b"]
)
def test_parameter_count(config: ModelConfig, billions: float) -> None:
    assert parameter_count(config.text) / 1e9 == pytest.approx(billions, abs=0.1)
