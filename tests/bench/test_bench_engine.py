"""The engine's benchmark at small sizes: its check, its rows, its labels, its simulated rates."""

from dataclasses import replace

import pytest
import torch

from ninfer.bench import engine
from ninfer.bench.engine import MODELS, NOTE, QUICK, Plan, run
from ninfer.bench.engine_roof import cache_bytes, operations, weight_bytes
from ninfer.bench.engine_scene import BenchModel, Sizes, new_runtime, round_seconds, seated
from ninfer.bench.report import Row
from ninfer.bench.simulated import SimulatedAcceptance, rate_for
from ninfer.cli.bench import main
from ninfer.errors import GenerationError, UsageError
from ninfer.runtime.rounds import RoundShape

CPU = torch.device("cpu")
SMALL = replace(
    QUICK,
    contexts=(200, 300),
    rows=(1, 2),
    batch=(1, 2),
    rates=(0.95,),
    steps=4,
    segments=2,
    repeats=2,
    adaptive_steps=4,
    chunk=128,
    short=100,
    whole_prompts=True,
    scale="micro",
)


def model(like: str = MODELS[0]) -> BenchModel:
    return BenchModel(like, "micro", CPU, torch.float32)


@pytest.mark.parametrize("like", MODELS)
def test_the_table_has_every_part(like: str) -> None:
    seen: list[Row] = []
    found = run(model(like), SMALL, seen.append)
    assert list(found.rows) == seen and found.note == NOTE and not found.failures
    names = [row.name for row in seen]
    of_context = ["prefill, last chunk", "prefill", "TTFT"]
    of_decode = ["decode", "round over step", "host beside the round"]
    given = {MODELS[0]: "3.40", MODELS[1]: "3.50"}[like]
    assert names == [
        *(of_context + of_decode) * 2,
        *of_decode * 2,
        *["round"] * 2,
        "MTP round",
        f"MTP decode, simulated acceptance of {given} tokens a round",
        "adaptive MTP, simulated acceptance 0.95",
    ]
    assert all(row.reference > 0 and row.value >= 0 for row in seen)
    assert all(row.shape["like"] == like for row in seen)
    assert "no text" in NOTE


def test_the_published_prompts_and_sizes_are_the_default() -> None:
    assert Plan().contexts == QUICK.contexts == (7_680, 64_512, 130_048, 260_096)
    assert Plan().rows == Plan().batch == tuple(range(1, 17))
    assert set(QUICK.rows) < set(Plan().rows) and Plan().scale == QUICK.scale == "full"


def test_nothing_is_timed_when_rounds_change_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = []
    monkeypatch.setattr(engine, "_plain", lambda *args: timed.append(args) or iter(()))
    honest = engine._tokens
    monkeypatch.setattr(
        engine,
        "_tokens",
        lambda runtime, asked: honest(runtime, asked) if runtime.rounds is None else [[0]],
    )
    with pytest.raises(GenerationError, match="rounds change the tokens; nothing was timed"):
        run(model(), SMALL)
    assert not timed


def test_steps_that_were_no_rounds_have_no_rate() -> None:
    runtime = new_runtime(model(), Sizes(100))
    with seated(runtime, 90) as (sequence,):
        sequence.top_logprobs = 1
        with pytest.raises(GenerationError, match="steps were no rounds"):
            engine._decoded(runtime, 4, 2)


def test_simulated_acceptance_has_the_rate_that_it_is_given() -> None:
    offsets = torch.arange(0, 4 * 501, 4)
    tokens = torch.arange(2000)
    accept = SimulatedAcceptance(0.5, CPU)
    wanted = sum(0.5**i for i in range(4))
    first, newest = accept(tokens, tokens, offsets)
    assert first.float().mean().item() == pytest.approx(wanted, rel=0.1)
    assert newest.tolist() == [4 * b + int(n) - 1 for b, n in enumerate(first)]
    again, _ = accept(tokens, tokens, offsets)
    assert not torch.equal(first, again)
    for rate, count in ((0.0, 1), (1.0, 4)):
        accept.set(rate)
        assert set(accept(tokens, tokens, offsets)[0].tolist()) == {count}
    single = accept(tokens[:3], tokens[:3], torch.arange(4))
    assert single[0].tolist() == [1, 1, 1] and single[1].tolist() == [0, 1, 2]


@pytest.mark.parametrize("wanted", [1.0, 2.2, 3.4, 4.0])
def test_the_rate_for_so_many_tokens_a_round(wanted: float) -> None:
    rate = rate_for(wanted, 3)
    assert sum(rate**i for i in range(4)) == pytest.approx(wanted, abs=1e-6)


def test_a_rate_that_no_round_gives_is_refused() -> None:
    with pytest.raises(ValueError, match="must be in 1"):
        rate_for(4.5, 3)


def test_the_roof_counts_bytes_that_a_step_reads() -> None:
    """By hand for the dense model; experts are met by chance."""
    dense, sparse = model(), model(MODELS[1])
    text = dense.config.text
    one = weight_bytes(dense.weights, text, 1)
    assert one == weight_bytes(dense.weights, text, 16)
    head = dense.weights.head.nbytes
    assert (
        head
        < one
        < head + sum(4 * n for n in [operations(dense.weights, text), 10_000 * text.layers])
    )
    few = weight_bytes(sparse.weights, sparse.config.text, 1)
    many = weight_bytes(sparse.weights, sparse.config.text, 1000)
    assert few < many
    caches = new_runtime(dense, Sizes(100))._runner.caches
    states = cache_bytes(caches, text, 0, 1)
    both = cache_bytes(caches, text, 64, 2)
    per_token = text.attention.kv_heads * (text.attention.head_dim * 2 + 2 * 2 * 4)
    assert both - 2 * states == pytest.approx(
        2 * 64 * len(text.attention_layers) * per_token, rel=0.1
    )


def test_rounds_by_rows_are_real_rounds() -> None:
    runtime = new_runtime(model(), Sizes(100, window=4))
    with seated(runtime, 90) as sequences:
        before = sequences[0].cached
        seconds = round_seconds(runtime, sequences, RoundShape(1, 4, given=True), 3)
        lanes = runtime.rounds.model.table.first(1)
        assert len(seconds) == 3 and min(seconds) > 0
        assert before + 6 <= int(lanes.frontiers[0]) <= before + 24


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no CUDA device; --scale tiny runs on it"):
        main(["engine", "--quick"])
    with pytest.raises(UsageError, match="--quick: only bench engine takes that, not formats"):
        main(["formats", "--quick"])
    with pytest.raises(UsageError, match=r"--model gpt: bench engine knows qwen3\.6-27b"):
        main(["engine", "--model", "gpt", "--scale", "micro"])
    monkeypatch.setattr(engine, "QUICK", SMALL)
    monkeypatch.setattr(engine, "_plain", lambda *args: iter(()))
    monkeypatch.setattr(engine, "_speculation", lambda *args: iter(()))
    assert main(["engine", "--quick", "--model", MODELS[0], "--scale", "micro"]) == 0
    out, err = capsys.readouterr()
    assert "random weights" in out and "round" in out and "round like=" in err
