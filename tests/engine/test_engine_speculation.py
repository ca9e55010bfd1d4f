"""Speculation and prefix reuse through the engine: other work, the same tokens."""

from dataclasses import replace
from pathlib import Path

import pytest

from ninfer.convert import synthesise
from ninfer.engine import Engine, EngineOptions, GenerationOptions
from ninfer.errors import UsageError
from ninfer.request import (
    ContentPart,
    Conversation,
    GenerationResult,
    LogitBias,
    Message,
    PreparedPrompt,
    TemplateOptions,
)

GREEDY = GenerationOptions(greedy=True, max_new=40)
SAMPLED = GenerationOptions(temperature=1.0, presence_penalty=0.0, seed=5, max_new=40)
PENALISED = replace(
    SAMPLED,
    presence_penalty=1.5,
    frequency_penalty=0.2,
    repetition_penalty=1.1,
    logit_bias=(LogitBias(40, 2.0), LogitBias(41, -5.0)),
)
TEXTS = (
    "What is a state slot?",
    "one two one two one two one two one two one two one two one two",
    "x" * 130,
)


@pytest.fixture(scope="module")
def artifacts(
    micro_artifacts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    path = tmp_path_factory.mktemp("dflash2") / "a.ninfer"
    synthesise(path, like="qwen3.8-27b", scale="micro", drafter="dflash2", seed=1)
    return {**micro_artifacts, "dflash2": path}


def load(path: Path, **changes: object) -> Engine:
    options = EngineOptions(artifact=path, max_context=512, device="cpu", max_concurrency=3)
    return Engine.load(replace(options, **changes))


def ask(engine: Engine, text: str) -> PreparedPrompt:
    message = Message("user", (ContentPart("text", text),))
    options = TemplateOptions(enable_thinking=False)
    return engine.prepare(Conversation((message,), template=options))


def tokens_of(engine: Engine) -> list[tuple[int, ...]]:
    """Every text in every mode, all at once."""
    requests = [
        engine.generate(ask(engine, text), mode)
        for mode in (GREEDY, SAMPLED, PENALISED)
        for text in TEXTS
    ]
    results = []
    for events in requests:
        *_, last = events
        assert isinstance(last, GenerationResult)
        results.append(last.token_ids)
    engine.check()
    return results


@pytest.fixture(scope="module")
def plain(artifacts: dict[str, Path]) -> dict[str, list[tuple[int, ...]]]:
    return {kind: tokens_of(load(path, prefix_cache_mib=0)) for kind, path in artifacts.items()}


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize(
    ("kind", "spec", "drafts", "indexed"),
    [
        ("dense", "mtp", 1, False),
        ("dense", "mtp", 5, True),
        ("dense", "lookup", 7, False),
        ("moe", "mtp", 3, False),
        ("moe", "dflash", 1, False),
        ("moe", "dflash", 15, True),
        ("dflash2", "dflash2", 7, False),
        ("dflash2", "mtp", 2, False),
    ],
)
def test_e2_e5_speculation_changes_nothing(
    artifacts: dict[str, Path],
    plain: dict[str, list[tuple[int, ...]]],
    kind: str,
    spec: str,
    drafts: int,
    indexed: bool,
    adaptive: bool,
) -> None:
    """E2, E5: greedy, sampled and penalised; alone or in company; any drafter and length."""
    engine = load(
        artifacts[kind],
        spec=spec,
        draft_tokens=drafts,
        lm_head_draft=indexed,
        adaptive_drafts=adaptive,
    )
    assert tokens_of(engine) == plain[kind]
    counters = engine.speculation_counters()
    assert counters is not None
    # Noise does not repeat itself, so lookup finds nothing in it.
    if not adaptive and spec != "lookup":
        assert counters.drafted > 20


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_a_warm_prefix_gives_the_tokens_of_a_cold_one(
    artifacts: dict[str, Path], plain: dict[str, list[tuple[int, ...]]], kind: str
) -> None:
    engine = load(artifacts[kind], prefix_cache_mib=64)
    assert tokens_of(engine) == plain[kind]
    stats = engine.prefix_stats()
    assert stats is not None
    before = stats.reused_tokens
    assert tokens_of(engine) == plain[kind]
    assert stats.reused_tokens > before


def test_speculation_over_a_warm_prefix(
    artifacts: dict[str, Path], plain: dict[str, list[tuple[int, ...]]]
) -> None:
    """The class of reports on prefix reuse with MTP over a recurrent state."""
    engine = load(artifacts["dense"], spec="mtp", draft_tokens=4, adaptive_drafts=False)
    for _ in range(3):
        assert tokens_of(engine) == plain["dense"]


def test_a_drafter_that_the_artifact_lacks_is_refused(artifacts: dict[str, Path]) -> None:
    with pytest.raises(
        UsageError, match="--spec dflash: this artifact holds nothing below dflash/"
    ):
        load(artifacts["dense"], spec="dflash")
