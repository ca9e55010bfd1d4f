"""Option checks: every refusal names the option and the value."""

import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ninfer.engine.generation_options import GenerationOptions, check_generation, template_options
from ninfer.engine.options import EngineOptions, RunOptions, check_engine, check_run, check_sizes
from ninfer.engine.resolve import resolve_device
from ninfer.engine.sizes import size_of
from ninfer.errors import UnsupportedError, UsageError
from ninfer.request import LogitBias

ENGINE = EngineOptions(artifact=Path("a.ninfer"))


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
        ({"max_concurrency": 0}, "--max-concurrency 0: must be 1..64"),
        ({"max_concurrency": 65}, "--max-concurrency 65: must be 1..64"),
        ({"memory_margin": "-1GiB"}, "--memory-margin '-1GiB': must be a size such as"),
        ({"memory_margin": "much"}, "--memory-margin 'much'"),
        ({"device": "gpu"}, "--device gpu: must be a device number, cpu or auto"),
        ({"device": "-1"}, "--device -1"),
        ({"device": "9" * 5000}, "--device 9"),
        ({"weights": "all"}, "--weights all: must be one of"),
        ({"activations": "fp8"}, "--activations fp8: must be one of"),
        ({"pending_timeout_ms": 0}, "--pending-timeout-ms 0: must be positive"),
        ({"step_timeout_s": -1}, "--step-timeout-s -1: must not be negative"),
    ],
)
def test_a_bad_engine_value_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_engine(replace(ENGINE, **change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
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
        ({"thinking_budget": -1}, "--thinking-budget -1: must not be negative"),
        ({"logprobs": 21}, r"--logprobs 21: must be 0\.\.20"),
        ({"logprobs": -1}, "--logprobs -1"),
        ({"prompt_logprobs": 21}, r"--prompt-logprobs 21: must be 0\.\.20"),
        ({"repetition_penalty": 0.0}, "--repetition-penalty 0.0: must be between 0.01 and 10"),
        ({"repetition_penalty": math.nan}, "--repetition-penalty nan"),
        ({"repetition_penalty": 10.5}, "--repetition-penalty 10.5: must be between 0.01 and 10"),
        ({"logit_bias": (LogitBias(7, 100.5),)}, "--logit-bias 7=100.5: must be between -100"),
        ({"logit_bias": (LogitBias(7, math.nan),)}, "--logit-bias 7=nan"),
        ({"logit_bias": (LogitBias(7, 1.0),) * 2}, "--logit-bias 7=1: the id has a bias already"),
        ({"seed": -1}, "--seed -1: must be between 0 and"),
        ({"seed": 2**64}, "--seed 18446744073709551616"),
        ({"greedy": True, "temperature": 0.5}, "--greedy contradicts --temperature 0.5"),
        ({"json": True, "json_schema": Path("s")}, "--json and --json-schema contradict"),
        ({"stop": ("",)}, "need a text that is not empty"),
        ({"reasoning_effort": "huge"}, "--reasoning-effort huge: must be one of"),
        ({"deadline_ms": 0}, "--deadline-ms 0: must be positive"),
    ],
)
def test_e11_a_bad_generation_value_is_named(change: dict[str, Any], message: str) -> None:
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
    others = {EngineOptions: ["artifact"], GenerationOptions: ["program"]}
    assert without == others.get(options, [])


def test_a_device_that_does_not_exist_is_named() -> None:
    with pytest.raises(UsageError, match="--device 99: this machine has"):
        resolve_device("99")
    assert resolve_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24GiB", 24 << 30),
        ("1.5gib", 3 << 29),
        ("24 GB", 24 * 10**9),
        ("512MiB", 512 << 20),
        ("7mb", 7 * 10**6),
        ("12", 12),
        ("0", 0),
    ],
)
def test_sizes_with_units(text: str, size: int) -> None:
    assert size_of("--device-memory", text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "24TiBs", "nan", "9" * 40, "1.GiB"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--device-memory .*: must be a size such as 24GiB"):
        size_of("--device-memory", text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spec": "mtp", "draft_tokens": 6}, "--draft-tokens 6: --spec mtp takes 1..5"),
        ({"spec": "dflash", "draft_tokens": 16}, "--draft-tokens 16: --spec dflash takes 1..15"),
        ({"draft_tokens": 3}, "need --spec"),
        ({"lm_head_draft": True}, "need --spec"),
    ],
)
def test_drafts_that_a_plan_cannot_mean_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_sizes(replace(ENGINE, **change))
