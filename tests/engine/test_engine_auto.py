"""Options chosen by what fits: nothing given up in vain, and the bytes that each step was for."""

import json
import logging
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ninfer.cards import Card, cards_named
from ninfer.engine import EngineOptions
from ninfer.engine import card_plan as planning
from ninfer.engine.auto import _LADDER, Choice, choose, wishes
from ninfer.engine.card_plan import chosen, flags_of, plan_all, plan_one, target_of
from ninfer.engine.options import check_engine
from ninfer.engine.plan import plan_engine
from ninfer.engine.registered import IDENTITIES, model_of, registered_sizes
from ninfer.engine.roof import SHARES, estimate, step_bytes
from ninfer.errors import UsageError

GIB = 1 << 30
CARDS = (8, 12, 16, 24, 32, 48, 80, 96, 141)
ASKED = EngineOptions(Path("a.ninfer"), weights="packed")
GIVEN = frozenset({"weights"})
ROOT = Path(__file__).resolve().parents[2]


@cache
def best(alias: str, gib: float, **changes: Any) -> Choice:
    """What is chosen on a card of so many GiB."""
    model = registered_sizes(IDENTITIES[alias])
    given = GIVEN | changes.keys()
    return choose(replace(ASKED, **changes), given, model, usable(gib), 2)


def usable(gib: float) -> int:
    return Card("any", 90, int(gib), None, None).usable_bytes


@pytest.mark.parametrize("alias", IDENTITIES)
def test_every_published_artifact_fits_32_gib(alias: str) -> None:
    """Planner row 4 of the issue: with drafts, vision and a context of 128 Ki at the least."""
    found = best(alias, 32)
    assert found.plan.memory.fits
    assert found.options.max_context >= 131_072
    assert found.options.spec == "mtp" and found.options.vision
    assert not found.options.host_vision and not found.options.host_embeddings
    assert found.options.kv_dtype in ("bf16", "int8")


@pytest.mark.parametrize("gib", CARDS)
@pytest.mark.parametrize("alias", IDENTITIES)
def test_choices_are_valid_fit_and_give_nothing_up_in_vain(alias: str, gib: int) -> None:
    found, model = best(alias, gib), registered_sizes(IDENTITIES[alias])
    check_engine(found.options)
    memory = usable(gib)
    again = plan_engine(found.options, model, memory, 2)
    assert again == found.plan
    if not found.plan.memory.fits:
        assert found.gave_way == ()
        return
    for item in found.gave_way:
        assert getattr(found.options, item.option) == item.value != item.wish
        wish: dict[str, Any] = {item.option: item.wish}
        plan = plan_engine(replace(found.options, **wish), model, memory, 2).memory
        assert plan.missing == item.missing > 0, str(item)
        assert f"{item.missing:,} bytes are missing" in str(item)
    wish_options = wishes(ASKED, GIVEN, model)
    named = {item.option for item in found.gave_way}
    for name in {name for name, _ in _LADDER} - named:
        assert getattr(found.options, name) == getattr(wish_options, name)
    if "max_context" in named:
        longer = replace(found.options, max_context=found.options.max_context + 1024)
        assert not plan_engine(longer, model, memory, 2).memory.fits


@pytest.mark.parametrize("alias", IDENTITIES)
def test_more_memory_never_fits_less(alias: str) -> None:
    fits = [best(alias, gib).plan.memory.fits for gib in CARDS]
    assert fits == sorted(fits)
    gave_way = [
        len(best(alias, gib).gave_way) for gib in CARDS if best(alias, gib).plan.memory.fits
    ]
    assert gave_way == sorted(gave_way, reverse=True)


def test_what_16_and_12_gb_get() -> None:
    """The 27B on 16 GB with the embeddings on the host; nothing of it on 12."""
    found = best("int-27b", 16)
    assert found.plan.memory.fits and found.options.host_embeddings
    assert found.options.max_context >= 4096
    plans = [best("int-27b", 16, kv_dtype=form).plan.memory for form in ("bf16", "int8", "int4")]
    assert plans[0].page_bytes > 1.9 * plans[1].page_bytes > 3.6 * plans[2].page_bytes
    assert not best("int-27b", 16, host_embeddings=False).options.host_embeddings
    for alias in IDENTITIES:
        assert not best(alias, 12).plan.memory.fits


def test_what_is_given_stays() -> None:
    given = {"kv_dtype": "bf16", "max_concurrency": 3, "vision": False, "max_context": 50_000}
    options = best("int-27b", 24, **given).options
    assert {name: getattr(options, name) for name in given} == given
    assert best("int-27b", 24, spec=None).options.spec is None
    drafts = best("int-27b", 16, spec="mtp", draft_tokens=3)
    assert drafts.options.spec == "mtp" and drafts.options.draft_tokens == 3
    heads = best("moe-35b", 32, spec="dflash", lm_head_draft=True).options
    assert (heads.spec, heads.lm_head_draft) == ("dflash", True)
    with pytest.raises(UsageError, match="--spec dflash: the drafters of this artifact are: mtp"):
        best("int-27b", 24, spec="dflash")


def test_a_capacity_that_is_given_bounds_the_context() -> None:
    options = best("int-27b", 24, kv_capacity=32_768).options
    check_engine(options)
    assert options.kv_capacity == 32_768 >= options.max_context


def test_cards_by_name() -> None:
    small = target_of(ASKED, "rtx4060ti", None)
    assert small.card is not None and small.card.memory_gib == 8
    assert "may also be RTX 4060 Ti of 16 GiB" in small.device
    told = target_of(ASKED, "rtx4060ti", int(15.6 * GIB))
    assert told.card is not None and told.card.memory_gib == 16 and "may also" not in told.device
    assert told.memory == int(15.6 * GIB)
    known = target_of(ASKED, "RTX 4090", None)
    assert (known.memory, known.activation_bytes) == (usable(24), 2)
    with pytest.raises(UsageError, match="--card rtx9999: not in the table of cards"):
        target_of(ASKED, "rtx9999", None)


def test_all_artifacts_on_a_card_the_best_first() -> None:
    found = plan_all(ASKED, target_of(ASKED, "rtx3090", None), GIVEN)
    assert {one.name for one in found} == set(IDENTITIES)
    fitting = [one.plan.memory.fits for one in found]
    assert fitting == sorted(fitting, reverse=True) and any(fitting)
    assert all(one.estimate is not None for one in found)


def test_a_published_artifact_needs_no_file(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("int-27b", "qwen3.6-27b/groupwise-int"):
        model, identity = model_of(name)
        assert str(identity) == "qwen3.6-27b/groupwise-int"
        assert model is registered_sizes(IDENTITIES["int-27b"])
    with pytest.raises(UsageError, match="'int-28b' is neither a file nor"):
        model_of("int-28b")


def test_auto_on_this_machine(
    micro_artifacts: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All is taken where there is room; what gives way is in the log; too little is refused."""

    def memory(size: int) -> None:
        monkeypatch.setattr(planning, "free_bytes", lambda device: size)

    asked = EngineOptions(micro_artifacts["dense"], device="cpu")
    memory(64 * GIB)
    with caplog.at_level(logging.INFO, "ninfer"):
        options = chosen(asked, set())
    assert (options.spec, options.vision, options.max_concurrency) == ("mtp", True, 4)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    caplog.clear()
    memory(2 * GIB + GIB // 4)
    with caplog.at_level(logging.WARNING, "ninfer"):
        options = chosen(asked, set())
    assert caplog.records and all("are missing" in record.message for record in caplog.records)
    one = plan_one(options, target_of(asked, None, None), None)
    assert one.plan.memory.fits
    memory(GIB // 8)
    with pytest.raises(UsageError, match=r"--auto: [\d,]+ bytes are missing with all that may"):
        chosen(asked, set())


def test_flags_are_read_back_as_the_options() -> None:
    from ninfer.cli.arguments import collect
    from ninfer.cli.plan import build_parser

    options = replace(best("int-27b", 16).options, weights="auto", cuda_graph=False)
    namespace = build_parser().parse_args([str(options.artifact), *flags_of(options).split()])
    assert collect(namespace, EngineOptions, artifact=options.artifact) == options


def test_shares_are_those_of_the_committed_measurement() -> None:
    """An estimate that needs no more than 10 %; correct ninfer/engine/roof.py when this fails."""
    rows = json.loads((ROOT / "bench" / "results" / "ops.json").read_text())
    assert rows["machine"]["device"] == "NVIDIA H200"
    for share in SHARES.values():
        found = [
            row
            for row in rows["rows"]
            if row["name"] == share.row
            and row["unit"] == "TB/s"
            and row["shape"].items() >= share.shape.items()
        ]
        assert found, share.row
        assert share.terabytes == pytest.approx(found[0]["value"], rel=0.1)
        assert 0.05 < share.part < 0.95


def test_estimates_follow_bytes_and_bandwidth() -> None:
    model = registered_sizes(IDENTITIES["int-27b"])
    demand = best("int-27b", 141).plan.demand
    (slow,), (fast,) = cards_named("rtx3090"), cards_named("h200")
    assert slow.bandwidth and fast.bandwidth
    one, two = (estimate(card, model, demand) for card in (slow, fast))
    assert one is not None and two is not None
    assert two.one / one.one == pytest.approx(fast.bandwidth / slow.bandwidth)
    assert one.one < one.bound and one.one < one.all < 4 * one.one
    read = step_bytes(model, demand, 1, 8192)
    weights = model.weights["text"].packed - model.embedding.packed
    assert read["weights"] == pytest.approx(weights, rel=0.01)
    assert read["KV"] == 8192 * 65_536 and read["experts"] == 0
    laptop = next(iter(cards_named("A10G")))
    assert estimate(replace(laptop, bandwidth=None), model, demand) is None


def test_a_step_meets_eight_of_256_experts() -> None:
    model = registered_sizes(IDENTITIES["moe-35b"])
    demand = best("moe-35b", 141).plan.demand
    stored = model.experts.resident(2, decoded=False)
    assert step_bytes(model, demand, 1, 64)["experts"] == pytest.approx(stored * 8 / 256)
    assert step_bytes(model, demand, 64, 64)["experts"] < stored


def test_the_ladder_names_options() -> None:
    assert {name for name, _ in _LADDER} <= {spec.name for spec in fields(EngineOptions)}
