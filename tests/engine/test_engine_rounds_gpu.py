"""Captured rounds on a card: equal ids however they are served, replayed, bounded, in the plan.

The artifacts are small synthetics of both geometries and the demo models of the package.
"""

import gc
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from ninfer.artifact.packaged import packaged_artifacts
from ninfer.convert import synthesise
from ninfer.engine import Engine, EngineOptions, GenerationOptions
from ninfer.engine.program import ProgramOptions
from ninfer.frontend import parse_conversation
from ninfer.ops import dispatch
from ninfer.request import GenerationResult
from ninfer.runtime.rounds import MOST_GRAPHS
from ninfer.runtime.rounds.graphs import CudaPlayer
from ninfer.runtime.workspace import graph_bytes, round_bytes

pytestmark = pytest.mark.gpu

PROMPTS, TOKENS, COMPANY = 64, 256, 8
SYNTHETIC = {"dense": "qwen3.6-27b", "moe": "qwen3.6-35b-a3b"}
DEMOS = [item.name for item in packaged_artifacts()]
MODES = (
    GenerationOptions(greedy=True),
    GenerationOptions(temperature=1.0, presence_penalty=0.0),
    GenerationOptions(temperature=0.8, top_p=0.95, top_k=20, presence_penalty=1.0),
)
_WORDS = ["page", "slot", "token", "draft", "round", "graph", "verify", "accept", "window", "state"]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("rounds")

    @cache
    def path_of(name: str) -> Path:
        if name in DEMOS:
            return Path(name)
        path = folder / f"{name}.ninfer"
        synthesise(path, like=SYNTHETIC[name], scale="tiny", seed=4)
        return path

    return path_of


@pytest.fixture(autouse=True)
def reference_afterwards() -> Iterator[None]:
    yield
    dispatch.set_backend("reference")


def engine(path: Path, **changes: Any) -> Engine:
    options = EngineOptions(
        artifact=path,
        device="0",
        backend="triton",
        max_context=1024,
        kv_dtype="int8",
        prefix_cache_mib=0,
        max_concurrency=COMPANY,
        max_pending_requests=1000,
    )
    return Engine.load(replace(options, **changes))


def ids(
    made: Engine, *, together: bool, count: int | None = None, stops: bool = False
) -> list[tuple[int, ...]]:
    """Token ids of the prompts, all at once or one after the other; without stops all TOKENS."""
    draw, runs = random.Random(5), []
    program = ProgramOptions(ignore_stops=not stops)
    for index in range(PROMPTS if count is None else count):
        text = " ".join(draw.choices(_WORDS, k=draw.randint(1, 60)))
        options = replace(MODES[index % len(MODES)], seed=index, max_new=TOKENS, program=program)
        prompt = made.prepare(parse_conversation([{"role": "user", "content": text}]))
        runs.append((prompt, options))
    if together:
        return [_last(list(run)) for run in [made.generate(*pair) for pair in runs]]
    return [_last(list(made.generate(*pair))) for pair in runs]


def _last(events: list[object]) -> tuple[int, ...]:
    assert isinstance(events[-1], GenerationResult)
    return events[-1].token_ids


def player_of(made: Engine) -> CudaPlayer:
    rounds = made._runtime.rounds
    assert rounds is not None and isinstance(rounds.player, CudaPlayer)
    return rounds.player


@pytest.mark.parametrize("name", [*SYNTHETIC, *DEMOS])
@pytest.mark.timeout(900)
def test_the_same_ids_alone_in_company_drafted_and_without_graphs(
    artifact: Callable[[str], Path], name: str
) -> None:
    path = artifact(name)
    made = engine(path)
    together = ids(made, together=True)
    player = player_of(made)
    # One that replays nothing would pass too.
    assert player.failure is None and player.replays > PROMPTS * TOKENS / COMPANY / 2
    made.check()
    assert ids(made, together=False, count=12) == together[:12]
    ways: dict[str, dict[str, Any]] = {
        "no graphs": {"cuda_graph": False},
        "MTP, three drafts": {"spec": "mtp", "draft_tokens": 3, "adaptive_drafts": False},
        "MTP, adaptive": {"spec": "mtp", "draft_tokens": 5},
        "lookup": {"spec": "lookup", "draft_tokens": 8, "adaptive_drafts": False},
    }
    for way, changes in ways.items():
        other = engine(path, **changes)
        assert ids(other, together=True) == together, way
        other.check()
        if changes.get("spec") == "mtp":
            counters = other.speculation_counters()
            assert counters is not None and counters.drafted
            assert player_of(other).failure is None


if DEMOS:  # The demo models have drafters that were trained; of random ones nothing is right.

    @pytest.mark.parametrize("name", DEMOS)
    @pytest.mark.timeout(900)
    def test_acceptance_is_that_of_a_processor(name: str) -> None:
        """Within one point: kernels and reference draft alike."""
        found = []
        for changes in ({}, {"device": "cpu", "backend": "reference", "kv_dtype": "int8"}):
            drafting = {"spec": "mtp", "draft_tokens": 3, "adaptive_drafts": False}
            made = engine(Path(name), **drafting, **changes)
            ids(made, together=True, count=24, stops=True)
            counters = made.speculation_counters()
            assert counters is not None
            found.append(counters.accepted / counters.drafted)
        assert found[0] == pytest.approx(found[1], abs=0.01)


def test_the_usual_shapes_are_captured_before_the_first_request(
    artifact: Callable[[str], Path],
) -> None:
    made = engine(artifact("dense"), spec="mtp", draft_tokens=3)
    player = player_of(made)
    assert player.failure is None
    assert player.captured == COMPANY * 3  # 0, 1 and 3 drafts
    before = player.replays
    ids(made, together=True, count=COMPANY)
    assert player.replays > before and player.captured <= MOST_GRAPHS


def test_graphs_take_no_more_than_was_planned(artifact: Callable[[str], Path]) -> None:
    """What a second engine takes beside a first, less the same without graphs."""
    taken = []
    for has_graphs in (False, True):
        torch.cuda.empty_cache()
        torch.cuda.synchronize()
        free = torch.cuda.mem_get_info()[0]
        made = engine(artifact("moe"), cuda_graph=has_graphs)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        taken.append(free - torch.cuda.mem_get_info()[0])
        text, runtime = made._model.config.text, made._runtime._runtime
        del made
        gc.collect()
    sizes = (text, runtime.state_slots, runtime.window, runtime.max_context)
    assert taken[1] - taken[0] <= round_bytes(*sizes) + graph_bytes(*sizes)


def test_a_failed_capture_changes_no_token(
    artifact: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = artifact("dense")
    expected = ids(engine(path), together=True, count=COMPANY)

    def refuse(*args: object, **kwargs: object) -> None:
        raise RuntimeError("captures are refused here")

    monkeypatch.setattr(torch.cuda, "graph", refuse)
    with caplog.at_level(logging.WARNING):
        made = engine(path)
    assert "captures are refused here" in caplog.text
    assert ids(made, together=True, count=COMPANY) == expected
    assert not player_of(made).captured


def test_a_real_failure_while_capturing_leaves_the_card_usable(
    artifact: Callable[[str], Path],
) -> None:
    """An op that waits breaks the capture; the engine goes on, to the same tokens."""
    path = artifact("dense")
    expected = ids(engine(path), together=True, count=COMPANY)
    made = engine(path, cuda_graph=True)
    player = player_of(made)
    player._known.clear()
    honest, captures = player._play, []

    def waits(layout: object, out: torch.Tensor) -> None:
        honest(layout, out)
        if torch.cuda.is_current_stream_capturing():
            captures.append(1)
            out.sum().item()

    player._play = waits
    assert ids(made, together=True, count=COMPANY) == expected
    assert captures and player.failure is not None and not player.captured


def test_the_host_is_a_round_behind(artifact: Callable[[str], Path]) -> None:
    made = engine(artifact("dense"))
    prompt = made.prepare(parse_conversation([{"role": "user", "content": "pages"}]))
    events = made.generate(prompt, GenerationOptions(greedy=True, max_new=64))
    next(events)
    rounds = made._runtime.rounds
    assert rounds is not None
    for _ in range(3):
        next(events)
    assert rounds.under_way == 1
    events.close()
    made.check()
