"""Rounds behind the engine's options: when there are any, what is said of them, and equal ids."""

import logging
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from equality_cases import Scene, alone, asks, together

from ninfer.engine import Engine, EngineOptions, GenerationOptions
from ninfer.engine import resolve as resolve_module
from ninfer.engine.resolve import resolve_rounds
from ninfer.frontend import parse_conversation
from ninfer.request import GenerationResult
from ninfer.runtime import RoundOptions
from ninfer.server.metrics import _EngineReader

CPU, CARD = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines whose host is a round behind, as on a card."""
    monkeypatch.setattr(resolve_module, "resolve_rounds", lambda *args: RoundOptions(ahead=1))


@pytest.mark.parametrize(
    ("changes", "device", "expected"),
    [
        ({}, CPU, RoundOptions(0, captures=False)),
        ({}, CARD, RoundOptions(0, captures=False)),
        ({"backend": "triton"}, CARD, RoundOptions(1, captures=True)),
        ({"backend": "triton", "cuda_graph": False}, CARD, None),
        ({"backend": "triton", "reuse_decoded": True}, CARD, None),
    ],
)
def test_which_engines_have_rounds(
    changes: dict[str, object], device: torch.device, expected: RoundOptions | None
) -> None:
    assert resolve_rounds(replace(EngineOptions(Path("x")), **changes), device) == expected


@pytest.mark.parametrize("spec", [None, "mtp", "lookup"])
def test_ids_are_those_without_rounds(
    micro_artifacts: dict[str, Path], spec: str | None, ahead: None
) -> None:
    """In company, by stops of all kinds, with the host a round behind."""
    scene = Scene(micro_artifacts["dense"], ("mtp",), max_new=24)
    requests = asks(scene, random.Random(3), 6)
    requests[1] = replace(requests[1], options=replace(requests[1].options, stop=("e",)))
    requests[2] = replace(requests[2], options=replace(requests[2].options, loop_guard=True))
    requests[4] = replace(requests[4], options=replace(requests[4].options, logprobs=2, max_new=5))
    drafts = {} if spec is None else {"spec": spec, "draft_tokens": 3}
    expected = alone(scene.engine(cuda_graph=False), requests)
    engine = scene.engine(max_concurrency=3, **drafts)
    for _ in range(2):
        assert together(engine, requests) == expected
        engine.check()
    snapshot = engine.snapshot()
    assert snapshot.decode_rounds > 20 and snapshot.graphs == 0
    assert {"prefill", "logprobs"} <= set(snapshot.plain_steps)


def test_a_stop_string_ends_an_answer_with_a_round_under_way(
    micro_artifacts: dict[str, Path], ahead: None
) -> None:
    """The text is cut where it is cut without rounds, and nothing of the round reaches anyone."""
    scene = Scene(micro_artifacts["dense"], (), max_new=40)
    options = GenerationOptions(temperature=1.0, seed=5, max_new=40, raw_output=True)
    conversation = parse_conversation([{"role": "user", "content": "pages"}])

    def texts(engine: Engine, options: GenerationOptions) -> tuple[str, GenerationResult]:
        *events, last = engine.generate(engine.prepare(conversation), options)
        assert isinstance(last, GenerationResult)
        return "".join(event.text for event in events if hasattr(event, "text")), last

    plain = scene.engine(cuda_graph=False)
    whole, _ = texts(plain, options)
    stop = next(c for c in whole[8:] if whole.index(c) > 6)
    stopping = replace(options, stop=(stop,))
    expected = texts(plain, stopping)
    engine = scene.engine()
    found = texts(engine, stopping)
    assert found[0] == expected[0] == whole[: whole.index(stop)]
    assert found[1].finish_reason is expected[1].finish_reason
    assert found[1].token_ids == expected[1].token_ids
    assert texts(engine, options)[0] == whole
    engine.check()


def test_the_start_says_how_steps_will_run(
    micro_artifacts: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(micro_artifacts["dense"], ())
    with caplog.at_level(logging.INFO, "ninfer"):
        scene.engine(cuda_graph=False)
        scene.engine()
    said = [r.getMessage() for r in caplog.records if r.getMessage().startswith("decode: ")]
    assert said == [
        "decode: every step from the host",
        "decode: rounds op by op, the host 0 behind",
    ]


def test_metrics_tell_rounds_and_what_kept_others_from_it(
    micro_artifacts: dict[str, Path],
) -> None:
    scene = Scene(micro_artifacts["dense"], (), max_new=9)
    engine = scene.engine()
    requests = asks(scene, random.Random(1), 1)
    alone(engine, requests)

    class Served:
        is_ready, generated_tokens, steps = True, 9, 9
        host_seconds = waited_seconds = 0.0

    served = Served()
    served.engine = engine
    found = {
        (sample.name, sample.labels.get("reason")): sample.value
        for metric in _EngineReader(served, "m").collect()
        for sample in metric.samples
    }
    assert found["ninfer_decode_rounds_total", None] == engine.snapshot().decode_rounds > 0
    assert found["ninfer_plain_steps_total", "prefill"] >= 1
