"""The published profiles fit their cards by the plan, and it is said by how many bytes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ninfer.artifact import Identity, open_artifact
from ninfer.bench.artifact import full_directory, write_sparse
from ninfer.engine import EngineOptions
from ninfer.engine.contents import read_contents
from ninfer.engine.plan import EnginePlan, model_sizes, plan_engine
from ninfer.runtime.memory_plan import ModelSizes

GIB = 1 << 30
IDENTITIES = {
    "int": Identity("qwen3.8-27b", "groupwise-int"),
    "nvfp4": Identity("qwen3.8-27b", "nvfp4"),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelSizes]:
    folder, found = tmp_path_factory.mktemp("profiles"), {}
    for name, identity in IDENTITIES.items():
        path = folder / f"{name}.ninfer"
        write_sparse(path, full_directory(identity))
        with open_artifact(path) as artifact:
            found[name] = model_sizes(artifact.directory, read_contents(artifact))
    return found


MTP3 = {"kv_dtype": "int8", "spec": "mtp", "draft_tokens": 3}
# Weights, GiB of the card, options, tokens of KV cache and MiB that have to be left at least.
PROFILES: list[tuple[str, int, dict[str, Any], int, int]] = [
    ("int", 24, {"max_context": 65_536, "max_concurrency": 4, **MTP3}, 110_000, 0),
    (
        *("int", 24, {"max_context": 65_536, "max_concurrency": 4, "kv_capacity": 65_536, **MTP3}),
        *(65_536, 1_500),
    ),
    ("nvfp4", 32, {"max_context": 32_768, "max_concurrency": 8}, 140_000, 0),
    ("nvfp4", 32, {"max_context": 32_768, "max_concurrency": 8, "kv_dtype": "int8"}, 262_144, 900),
    ("int", 32, {"max_context": 262_144, **MTP3}, 262_144, 300),
]


def planned(model: ModelSizes, memory: int, changes: dict[str, Any]) -> EnginePlan:
    options = EngineOptions(
        Path("27b.ninfer"), device="0", backend="triton", weights="packed", **changes
    )
    return plan_engine(options, model, memory, 2)


@pytest.mark.parametrize(("weights", "gib", "changes", "tokens", "spare"), PROFILES)
def test_a_published_profile_fits_by_plan(
    models: dict[str, ModelSizes],
    record_property: Callable[[str, object], None],
    weights: str,
    gib: int,
    changes: dict[str, Any],
    tokens: int,
    spare: int,
) -> None:
    memory = planned(models[weights], gib * GIB, changes).memory
    left = memory.memory - memory.margin - memory.total
    record_property("left_bytes", left)
    assert memory.fits and memory.tokens >= tokens, memory
    assert left >= spare << 20, left
    # Every sequence has a slot with its drafts, and graphs have their memory.
    assert memory.parts["state slots"] and memory.parts["decode rounds"] > 64 << 20
    # With the KV cache at its least, one byte less than is needed does not fit.
    least = replace_capacity(changes)
    needed = planned(models[weights], gib * GIB, least).memory.total + memory.margin
    assert planned(models[weights], needed, least).memory.fits
    assert planned(models[weights], needed - 1, least).memory.missing == 1


def replace_capacity(changes: dict[str, Any]) -> dict[str, Any]:
    """The same with a KV cache for one sequence of full length."""
    return {**changes, "kv_capacity": changes["max_context"]}


def test_the_profile_of_the_original_takes_about_what_it_took(
    models: dict[str, ModelSizes],
) -> None:
    """21,013 MiB were measured of the original; the plan also keeps snapshots of prefixes."""
    changes = {"max_context": 65_536, "max_concurrency": 4, "kv_capacity": 65_536, **MTP3}
    memory = planned(models["int"], 24 * GIB, changes).memory
    own = memory.total - memory.parts["prefix snapshots"]
    assert 0.95 < own / (21_013 << 20) < 1.05, own >> 20


@pytest.mark.parametrize("kv_dtype", ["int8", "bf16"])
def test_the_longest_context_of_a_card_is_planned_to_the_byte(
    models: dict[str, ModelSizes], kv_dtype: str
) -> None:
    """KV pages of the decoder and the drafter: bytes of a token by hand."""
    config = models["int"].config.text
    sizes = config.attention
    values = len(config.attention_layers) + 1  # MTP has one
    row = {"int8": sizes.head_dim + 2 * sizes.head_dim // 64, "bf16": 2 * sizes.head_dim}[kv_dtype]
    token = values * 2 * sizes.kv_heads * row
    changes = {"max_context": 262_144, **MTP3, "kv_dtype": kv_dtype}
    memory = planned(models["int"], 80 * GIB, changes).memory
    assert memory.parts["KV pages"] == 262_144 * token
