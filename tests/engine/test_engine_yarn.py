"""--yarn-factor: what it lets in, that MTP is stretched with the model, and what it keeps apart."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from ninfer import ops
from ninfer.artifact import open_artifact
from ninfer.artifact.packaged import locate
from ninfer.bench.artifact import write_sparse
from ninfer.engine import Engine, EngineOptions, GenerationOptions
from ninfer.engine.card_plan import CardPlan, plan_one, target_of
from ninfer.engine.contents import read_contents
from ninfer.engine.options import check_engine
from ninfer.engine.prefix import prefix_options
from ninfer.engine.registered import IDENTITIES, full_directory
from ninfer.errors import UsageError
from ninfer.frontend import parse_conversation
from ninfer.request import GenerationResult, PreparedPrompt
from ninfer.runtime import RuntimeConfig

QUESTIONS: Final = tuple(f"What is {11 + 7 * n} plus {83 - 5 * n}?" for n in range(12))


def tiny(**changes: object) -> EngineOptions:
    return EngineOptions(locate(Path("tiny")), device="cpu", **changes)


@pytest.mark.parametrize("factor", [0.5, 4.5, float("nan"), float("inf")])
def test_a_factor_out_of_range_is_refused(factor: float) -> None:
    with pytest.raises(UsageError, match=rf"--yarn-factor {factor}: must be 1..4"):
        check_engine(tiny(yarn_factor=factor))


def planned(options: EngineOptions) -> CardPlan:
    return plan_one(options, target_of(options, None, 80 << 30), None)


def test_the_27b_takes_524288_tokens_by_plan(tmp_path: Path) -> None:
    path = tmp_path / "27b.ninfer"
    write_sparse(path, full_directory(IDENTITIES["int-27b"]))
    options = EngineOptions(
        path, device="cpu", max_context=524_288, kv_dtype="int8", spec="mtp", draft_tokens=3
    )
    with pytest.raises(UsageError, match="limit is 262144; --yarn-factor raises it"):
        planned(options)
    found = planned(replace(options, yarn_factor=2.0))
    assert found.plan.memory.fits and found.plan.memory.tokens == 524_288
    assert found.model.config.text.context == 524_288
    with pytest.raises(UsageError, match="limit is 524288"):
        planned(replace(options, yarn_factor=2.0, max_context=524_289))


def answers(options: EngineOptions) -> tuple[list[tuple[int, ...]], int, int]:
    """Ids of some questions, and how many drafts were tried and right."""
    engine = Engine.load(options)
    found = []
    for question in QUESTIONS:
        prompt = engine.prepare(parse_conversation([{"role": "user", "content": question}]))
        *_, last = engine.generate(prompt, GenerationOptions(max_new=48, greedy=True))
        assert isinstance(last, GenerationResult)
        found.append(last.token_ids)
    counters = engine.speculation_counters()
    return found, counters.drafted if counters else 0, counters.accepted if counters else 0


@pytest.mark.soak
def test_mtp_is_right_as_often_in_a_stretched_context(
    record_property: Callable[[str, object], None],
) -> None:
    """Of the trained model, up to three deviations of what so many drafts can tell."""
    drafting = {"spec": "mtp", "draft_tokens": 3, "adaptive_drafts": False}
    _, tried, right = answers(tiny(**drafting))
    alone, _, _ = answers(tiny(yarn_factor=2.0))
    drafted, tried_far, right_far = answers(tiny(yarn_factor=2.0, **drafting))
    assert drafted == alone
    plain, stretched = right / tried, right_far / tried_far
    assert min(tried, tried_far) > 300 and plain > 0.8
    assert stretched > plain - 3 * (plain * (1 - plain) / tried_far) ** 0.5, (plain, stretched)
    record_property("count", tried_far)
    record_property("unit", "drafts of MTP in a context stretched by YaRN")


@pytest.mark.parametrize("cuda_graph", [True, False])
def test_every_rotation_is_stretched(
    micro_artifacts: dict[str, Path], monkeypatch: pytest.MonkeyPatch, cuda_graph: bool
) -> None:
    """Decoder and MTP, in prefill, rounds and steps: a drafter without the factor drifts off."""
    seen: set[tuple[float, int]] = set()
    own = ops.mrope

    def recorded(*arguments: Any, **sizes: Any) -> Any:
        seen.add((sizes.get("factor", 1.0), sizes.get("native", 1)))
        return own(*arguments, **sizes)

    monkeypatch.setattr(ops, "mrope", recorded)
    options = EngineOptions(
        micro_artifacts["dense"], device="cpu", spec="mtp", draft_tokens=2, cuda_graph=cuda_graph
    )
    prompt = PreparedPrompt("", tuple(range(70)), starts_in_reasoning=False)
    for factor in (None, 2.0):
        seen.clear()
        engine = Engine.load(replace(options, yarn_factor=factor))
        *_, _ = engine.generate(prompt, GenerationOptions(max_new=6, greedy=True))
        counters = engine.speculation_counters()
        assert counters is not None and counters.drafted
        native = resolve_native(micro_artifacts["dense"])
        assert seen == {(1.0, 1) if factor is None else (2.0, native)}


def resolve_native(path: Path) -> int:
    with open_artifact(path) as artifact:
        return read_contents(artifact).config.text.context


def test_prompts_kept_without_it_are_not_used_with_it() -> None:
    sizes = RuntimeConfig(torch.device("cpu"), torch.float32, "bf16", 64, 1, 1, 128)
    salts = []
    for factor in (None, 1.0, 2.0, 4.0):
        kept = prefix_options(
            tiny(yarn_factor=factor),
            sizes,
            artifact=None,
            fingerprint="",
            backend="reference",
            decoded=True,
        )
        assert kept is not None
        salts.append(kept.salt)
    assert salts[0] == salts[1] and len(set(salts)) == 3
