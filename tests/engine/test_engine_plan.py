"""Options to a memory plan: what gives way, what is refused and which remedies are true."""

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ninfer.artifact import open_artifact
from ninfer.bench.artifact import IDENTITY, write_sparse
from ninfer.engine import Engine, EngineOptions
from ninfer.engine import resolve as resolving
from ninfer.engine.card_plan import CardPlan, plan_one, target_of
from ninfer.engine.contents import read_contents
from ninfer.engine.plan import EnginePlan, model_sizes, plan_engine, refusal, remedies
from ninfer.engine.registered import full_directory
from ninfer.engine.resolve import resolve
from ninfer.errors import UnsupportedError, UsageError
from ninfer.runtime.memory_plan import ModelSizes

GIB = 1 << 30


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the directory of the 27B and a hole for its payload."""
    path = tmp_path_factory.mktemp("plan") / "27b.ninfer"
    write_sparse(path, full_directory(IDENTITY))
    return path


@pytest.fixture(scope="module")
def dense(sparse: Path) -> ModelSizes:
    with open_artifact(sparse) as artifact:
        return model_sizes(artifact.directory, read_contents(artifact))


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets how much memory seems to be free."""
    return lambda size: monkeypatch.setattr(resolving, "free_bytes", lambda device: size)


def asked(**changes: Any) -> EngineOptions:
    return replace(EngineOptions(Path("a.ninfer"), device="cpu"), **changes)


def planned(model: ModelSizes, gib: float, **changes: Any) -> EnginePlan:
    return plan_engine(asked(**changes), model, int(gib * GIB), 2)


def planned_file(options: EngineOptions, memory: int | None = None) -> CardPlan:
    """The plan of a file that is not loaded."""
    return plan_one(options, target_of(options, None, memory), None)


def applied(options: EngineOptions, remedy: str) -> EngineOptions:
    """The options that a remedy stands for, read from its text."""
    for part in re.split(r" \+ |(?<!no) (?=--)", remedy):
        if part.startswith("no --"):
            name = part.removeprefix("no --").split()[0].replace("-", "_")
            off = {"spec": None, "draft_tokens": None, "lm_head_draft": False}
            options = replace(options, **(off if name == "spec" else {name: False}))
            continue
        if " " not in part:
            options = replace(options, **{part.removeprefix("--").replace("-", "_"): True})
            continue
        flag, value = part.split()
        name = flag.removeprefix("--").replace("-", "_")
        number = int(value) if value.isdecimal() else value
        options = replace(options, **{name: None if value == "auto" else number})
    return options


@pytest.mark.parametrize("gib", [8, 12, 16, 17, 18, 20, 24, 32, 48])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"max_context": 131_072},
        {"max_context": 262_144, "max_concurrency": 8, "kv_capacity": 8 * 262_144},
        {"max_context": 65_536, "max_concurrency": 64},
        {"max_context": 131_072, "spec": "mtp", "lm_head_draft": True, "vision": True},
        {"max_context": 8192, "weights": "decoded"},
    ],
)
def test_every_remedy_fits(dense: ModelSizes, gib: int, changes: dict[str, Any]) -> None:
    plan = planned(dense, gib, **changes)
    found = remedies(plan, dense)
    if plan.memory.fits:
        return
    for remedy in found:
        options = applied(plan.options, remedy)
        assert options != plan.options
        assert plan_engine(options, dense, gib * GIB, 2).memory.fits, remedy
    assert found or gib <= 17, "the 27B fits into 18 GiB somehow"


def test_the_longest_context_that_fits_is_offered(dense: ModelSizes) -> None:
    plan = planned(dense, 24, max_context=262_144)
    (context,) = (int(r.split()[1]) for r in remedies(plan, dense) if r.startswith("--max-context"))
    assert planned(dense, 24, max_context=context).memory.fits
    assert not planned(dense, 24, max_context=context + 1024).memory.fits


def test_nothing_is_offered_where_nothing_fits(dense: ModelSizes) -> None:
    plan = planned(dense, 8, max_context=2048)
    assert remedies(plan, dense) == []
    assert "take a smaller model or a larger device" in refusal(plan, dense)


def test_k4_a_context_that_does_not_fit_is_refused_with_the_deficit(
    dense: ModelSizes, memory: Callable[[int], None]
) -> None:
    """K4: the report had a context of 100,480 cut to 57,344 without a word."""
    memory(20 * GIB)
    options = asked(max_context=100_480, activations="bf16")
    missing = plan_engine(options, dense, 20 * GIB, 2).memory.missing
    with pytest.raises(UsageError, match=f"--max-context 100480: .*; {missing:,} bytes are miss"):
        resolve(options, dense)


def test_k4_a_capacity_that_gives_way_is_announced(
    dense: ModelSizes, memory: Callable[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    """K4: an automatic capacity is cut, but never in silence; what was asked for stays."""
    memory(32 * GIB)
    options = asked(
        max_context=65_536, max_concurrency=4, activations="bf16", kv_dtype="int8", vision=True
    )
    with caplog.at_level(logging.WARNING, "ninfer"):
        plenty = resolve(options, dense)
    assert (plenty.runtime.pages, caplog.text) == (4 * 1024, "")
    memory(24 * GIB)
    with caplog.at_level(logging.WARNING, "ninfer"):
        cut = resolve(options, dense)
    assert 1024 <= cut.runtime.pages < 4 * 1024
    assert (cut.runtime.max_context, cut.runtime.state_slots) == (65_536, 4)
    assert (
        f"--kv-capacity auto: {cut.runtime.pages * 64:,} tokens in place of 262,144" in caplog.text
    )


def test_k5_the_margin_holds_for_both_and_can_be_lowered(dense: ModelSizes) -> None:
    """K5: the planner keeps 1 GiB free for automatic and explicit sizes, and says how to go on."""
    wanted = {"max_context": 131_072, "kv_dtype": "int8"}
    explicit = planned(dense, 24, **wanted, kv_capacity=131_072)
    needed = explicit.memory.total + GIB - (150 << 20)
    for capacity in (None, 131_072):
        options = asked(**wanted, kv_capacity=capacity)
        plan = plan_engine(options, dense, needed, 2)
        assert plan.memory.missing == 150 << 20
        assert "--memory-margin 874MiB" in remedies(plan, dense)
        lowered = replace(options, memory_margin="874MiB")
        assert plan_engine(lowered, dense, needed, 2).memory.tokens == 131_072


def test_k7_eight_long_sequences_are_refused_before_loading(
    sparse: Path, memory: Callable[[int], None]
) -> None:
    """K7: the answer comes from the directory; this file has no weights that could be loaded."""
    memory(32 * GIB)
    changes = {"max_context": 262_144, "max_concurrency": 8, "kv_capacity": 8 * 262_144}
    options = asked(artifact=sparse, **changes)
    one = planned_file(options, 32 * GIB)
    plan, model = one.plan, one.model
    assert not plan.memory.fits and remedies(plan, model)


def test_the_engine_refuses_in_the_words_of_the_plan(
    micro_artifacts: dict[str, Path], memory: Callable[[int], None]
) -> None:
    memory(GIB + (10 << 20))
    options = asked(artifact=micro_artifacts["dense"], max_context=32_768)
    one = planned_file(options, GIB + (10 << 20))
    plan, model = one.plan, one.model
    read: list[str] = []
    with pytest.raises(UsageError) as error:
        Engine.load(options, lambda name, *_: read.append(name))
    assert str(error.value) == refusal(plan, model)
    assert read == []


def test_decoded_weights_only_where_nothing_gives_way_for_them(dense: ModelSizes) -> None:
    """The decoded 27B takes about 108 GB; auto wants as much again besides."""
    cases = ((180, 2048, False), (220, 2048, True), (220, 262_144, True))
    for gib, context, decoded in cases:
        assert planned(dense, gib, max_context=context).demand.decoded is decoded
    crowded = {"max_context": 262_144, "max_concurrency": 8}
    assert not planned(dense, 220, **crowded).demand.decoded
    assert planned(dense, 220, **crowded, weights="decoded").demand.decoded


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"max_context": 262_145}, UsageError, "262145: the model's limit is 262144"),
        ({"max_context": 100, "kv_capacity": 129}, UsageError, "--kv-capacity 129: .* 128 tokens"),
        ({"kv_dtype": "nvfp4"}, UnsupportedError, "--kv-dtype nvfp4: not available"),
        ({"spec": "dflash"}, UsageError, "--spec dflash: .* are: mtp"),
    ],
)
def test_what_does_not_suit_the_model_is_named(
    dense: ModelSizes, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        planned(dense, 96, **change)


def test_components_that_are_missing_are_named(micro_artifacts: dict[str, Path]) -> None:
    whole = planned_file(asked(artifact=micro_artifacts["dense"]), 4 * GIB).model
    text_only = ModelSizes(whole.config, {"text": whole.weights["text"]})
    for change in ({"vision": True}, {"spec": "mtp"}):
        with pytest.raises(UsageError, match="this artifact"):
            planned(text_only, 4, **change)
    with pytest.raises(UsageError, match="no draft head"):
        planned(
            replace(text_only, weights={**text_only.weights, "mtp": whole.weights["mtp"]}),
            4,
            spec="mtp",
            lm_head_draft=True,
        )


def test_the_window_of_drafts_reaches_the_runtime(
    dense: ModelSizes, memory: Callable[[int], None]
) -> None:
    memory(96 * GIB)
    options = asked(spec="mtp", draft_tokens=3, activations="bf16")
    assert resolve(options, dense).runtime.window == 4
    assert resolve(asked(activations="bf16"), dense).runtime.window == 1


def test_a_stated_memory_is_that_of_a_card(sparse: Path) -> None:
    """Activations are bf16 on a card, whatever this machine has, and fp32 on a CPU."""
    for device, size in (("auto", 2), ("0", 2), ("cpu", 4)):
        plan = planned_file(EngineOptions(sparse, device=device), 24 * GIB).plan
        assert plan.demand.activation_bytes == size
