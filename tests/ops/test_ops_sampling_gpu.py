"""Triton forms of sampling on a card at the models' sizes: draws, company, repeats, graphs."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ninfer import ops
from ninfer.bench import sampling_case
from ninfer.ops import dispatch
from ninfer.ops.sampling import five_launches
from ninfer.ops.tensors import DrawSettings
from tests.ops.draw_scene import LIMIT, VOCABULARY, cut_rows, mixed_draws, rules

pytestmark = pytest.mark.gpu

# The quantile 0.999 of the chi-square law by degrees of freedom.
CHI_SQUARE = {2: 13.82, 4: 18.47, 9: 27.88}


@pytest.fixture(autouse=True)
def on_this_card() -> Iterator[None]:
    major, minor = torch.cuda.get_device_capability()
    dispatch.set_backend("triton", 10 * major + minor)
    yield
    dispatch.set_backend("reference")


def by_reference(op: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    with dispatch.using("reference"):
        return op(*arguments, **named)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("spread", [0.05, 3.0, 30.0])
def test_draws_equal_the_reference(spread: float, dtype: torch.dtype):
    logits = (torch.randn(48, VOCABULARY, device="cuda") * spread).to(dtype)
    draws = mixed_draws(48)
    got = ops.next_tokens(logits, draws, limit=LIMIT)
    assert torch.equal(got, by_reference(ops.next_tokens, logits, draws, limit=LIMIT))


def test_draws_under_rules_equal_the_reference():
    logits = (torch.randn(48, VOCABULARY, device="cuda") * 3).bfloat16()
    draws, changes = mixed_draws(48), rules(48)
    got = ops.next_tokens(logits, draws, limit=LIMIT, **changes)
    want = by_reference(ops.next_tokens, logits, draws, limit=LIMIT, **changes)
    assert torch.equal(got, want)


def test_a_row_whose_bulk_is_in_question_equals_the_reference():
    """One logit far above the others at a temperature that lets the others win; and equal rows."""
    logits = torch.randn(6, VOCABULARY, device="cuda")
    logits[:3, 1000] = 60.0
    logits[3:] = torch.tensor([[0.0], [1.5], [-7.0]], device="cuda")
    draws = replace(
        mixed_draws(6),
        temperature=torch.full((6,), 4.5, device="cuda", dtype=torch.float64),
        top_k=torch.tensor([0, 0, 200_000, 0, 0, 100_000], device="cuda"),
        top_p=torch.tensor([1.0, 0.9, 0.95, 1.0, 0.5, 0.7], device="cuda", dtype=torch.float64),
        min_p=torch.zeros(6, device="cuda", dtype=torch.float64),
    )
    got = ops.next_tokens(logits, draws, limit=LIMIT)
    assert torch.equal(got, by_reference(ops.next_tokens, logits, draws, limit=LIMIT))


def test_both_ways_of_deciding_agree(monkeypatch: pytest.MonkeyPatch):
    logits = (torch.randn(32, VOCABULARY, device="cuda") * 3).bfloat16()
    draws = mixed_draws(32)
    few = ops.next_tokens(logits, draws, limit=LIMIT)
    monkeypatch.setattr(five_launches, "ROOM", 1)
    assert torch.equal(ops.next_tokens(logits, draws, limit=LIMIT), few)


def test_a_row_is_the_same_in_any_company_and_every_time():
    logits = (torch.randn(64, VOCABULARY, device="cuda") * 2).bfloat16()
    draws, changes = mixed_draws(64), rules(64)
    together = ops.next_tokens(logits, draws, limit=LIMIT, **changes)
    for _ in range(20):
        assert torch.equal(ops.next_tokens(logits, draws, limit=LIMIT, **changes), together)
    for part in [slice(row, row + 1) for row in range(64)] + [slice(3, 10), slice(20, 53)]:
        some = {name: cut_rows(view, part) for name, view in changes.items()}
        alone = ops.next_tokens(logits[part].clone(), cut_rows(draws, part), limit=LIMIT, **some)
        assert torch.equal(alone, together[part])


@pytest.mark.parametrize(
    ("cuts", "count"),
    [
        ({"temperature": 0.8}, 10),
        ({"temperature": 1.7, "top_k": 5}, 5),
        ({"temperature": 1.0, "top_k": 5, "top_p": 0.7, "min_p": 0.05}, 3),
    ],
)
def test_draws_follow_the_distribution(cuts: dict[str, float], count: int):
    draws = 20_000
    logits = torch.linspace(-1, 1, 10, device="cuda")[torch.randperm(10, device="cuda")]
    ids = logits.argsort(descending=True)[:count]
    powers = (logits[ids].double() / cuts["temperature"]).exp()

    def every(value: float, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.full((draws,), value, dtype=dtype, device="cuda")

    settings = DrawSettings(
        temperature=every(cuts["temperature"]),
        top_k=every(cuts.get("top_k", 0), torch.int64),
        top_p=every(cuts.get("top_p", 1.0)),
        min_p=every(cuts.get("min_p", 0.0)),
        seeds=every(7, torch.int64),
        positions=torch.arange(draws, device="cuda"),
        purposes=every(1, torch.int64),
    )
    # Parts of it, since memory between the launches is per row.
    parts = [slice(start, start + 500) for start in range(0, draws, 500)]
    got = torch.cat(
        [
            ops.next_tokens(logits.repeat(500, 1), cut_rows(settings, part), limit=10)
            for part in parts
        ]
    )
    observed = (got.unsqueeze(1) == ids).sum(0)
    assert int(observed.sum()) == draws
    expected = powers / powers.sum() * draws
    assert float(((observed - expected) ** 2 / expected).sum()) < CHI_SQUARE[count - 1]


def test_one_captured_call_serves_every_kind_of_row():
    logits = (torch.randn(8, VOCABULARY, device="cuda") * 3).bfloat16()
    draws, changes = mixed_draws(8), rules(8)
    ops.next_tokens(logits, draws, limit=LIMIT, **changes)  # compiled before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ops.next_tokens(logits, draws, limit=LIMIT, **changes)
    for _ in range(5):
        views = {"draws": (draws, mixed_draws(8))}
        views |= {name: (changes[name], new) for name, new in rules(8).items()}
        for old, new in views.values():
            for name in old.__dataclass_fields__:
                getattr(old, name).copy_(getattr(new, name))
        logits.copy_(torch.randn(8, VOCABULARY, device="cuda") * 3)
        out.fill_(-7)
        graph.replay()
        want = by_reference(ops.next_tokens, logits, draws, limit=LIMIT, **changes)
        assert torch.equal(out, want)


def captured(call: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    return graph, out


def test_log_probabilities_captured_and_replayed():
    logits = (torch.randn(4, VOCABULARY, device="cuda") * 3).bfloat16()
    graph, (ids, values) = captured(lambda: ops.top_logprobs(logits, LIMIT, 20))
    for _ in range(3):
        logits.copy_(torch.randn(4, VOCABULARY, device="cuda") * 3)
        ids.fill_(-7)
        values.fill_(torch.nan)
        graph.replay()
        want_ids, want = by_reference(ops.top_logprobs, logits.double(), LIMIT, 20)
        assert torch.equal(ids, want_ids)
        assert float((values - want).abs().max()) < 1e-5


def test_a_round_of_drafts_captured_and_replayed():
    """Accept, then lay out the next block from what was accepted, with nothing read back."""
    offsets = torch.arange(0, 8 * 4 + 1, 4, device="cuda")
    tokens = torch.zeros(32, dtype=torch.int64, device="cuda")
    drafts, frontiers = torch.zeros_like(tokens), torch.arange(100, 108, device="cuda")
    table = torch.arange(80, device="cuda").view(8, 10)

    def round_of() -> tuple[Tensor, Any]:
        counts, newest = ops.accept_drafts(tokens, drafts, offsets)
        nothing = torch.full((8, 3), 9, device="cuda")
        return counts, ops.block_rows(newest, nothing, frontiers + counts, table, 64)

    graph, (counts, block) = captured(round_of)
    for _ in range(5):
        tokens.copy_(torch.randint(0, 2, (32,), device="cuda"))
        drafts.copy_(torch.randint(0, 2, (32,), device="cuda"))
        graph.replay()
        with dispatch.using("reference"):
            want_counts, want = round_of()
        assert torch.equal(counts, want_counts)
        for name in ("tokens", "positions", "kv_slots", "kv_lengths"):
            assert torch.equal(getattr(block, name), getattr(want, name)), name


@pytest.mark.parametrize("rows", sampling_case.ROWS)
def test_what_the_bench_times_is_right(rows: int):
    for case in sampling_case.cases(rows, torch.device("cuda")):
        case.check()
