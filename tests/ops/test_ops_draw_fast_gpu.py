"""The CUDA draw on a card at the models' sizes: draws, sizes, company, graphs."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from ninfer.bench import sampling_case
from ninfer.bench.draw_variants import VARIANTS
from ninfer.ops.sampling import fast, portable, reference
from tests.ops.draw_scene import LIMIT, VOCABULARY, cut_rows, mixed_draws, rules

pytestmark = pytest.mark.gpu


def check(logits: torch.Tensor, draws: Any, **changes: Any) -> torch.Tensor:
    got = fast.next_tokens(logits, draws, limit=LIMIT, **changes)
    assert torch.equal(got, reference.next_tokens(logits, draws, limit=LIMIT, **changes))
    return got


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("spread", [0.05, 3.0, 30.0])
@pytest.mark.parametrize("rows", [3, 48])
def test_draws_equal_the_reference(spread: float, dtype: torch.dtype, rows: int):
    logits = (torch.randn(rows, VOCABULARY, device="cuda") * spread).to(dtype)
    check(logits, mixed_draws(rows))


@pytest.mark.parametrize("rows", [2, 48])
def test_draws_under_rules_equal_the_reference_and_the_portable_form(rows: int):
    logits = (torch.randn(rows, VOCABULARY, device="cuda") * 3).bfloat16()
    draws, changes = mixed_draws(rows), rules(rows)
    got = check(logits, draws, **changes)
    assert torch.equal(got, portable.next_tokens(logits, draws, limit=LIMIT, **changes))


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
    for part in (slice(0, 6), slice(1, 3), slice(4, 6)):
        check(logits[part], cut_rows(draws, part))


def test_rows_that_cannot_be_used_give_no_token():
    logits = torch.randn(4, VOCABULARY, device="cuda").bfloat16()
    logits[0, LIMIT - 1], logits[1, 5], logits[2, :LIMIT] = torch.nan, torch.inf, -torch.inf
    logits[3, LIMIT:] = torch.nan
    assert check(logits, mixed_draws(4))[:3].tolist() == [-1, -1, -1]


def test_a_row_is_the_same_in_any_company():
    logits = (torch.randn(64, VOCABULARY, device="cuda") * 3).bfloat16()
    draws, changes = mixed_draws(64), rules(64)
    together = fast.next_tokens(logits, draws, limit=LIMIT, **changes)
    for part in (slice(0, 1), slice(5, 9), slice(7, 40)):
        views = {name: cut_rows(view, part) for name, view in changes.items()}
        got = fast.next_tokens(logits[part], cut_rows(draws, part), limit=LIMIT, **views)
        assert torch.equal(got, together[part])


@pytest.mark.parametrize("rows", [1, 4, 5, 64])
def test_captured_and_replayed(rows: int):
    logits = (torch.randn(rows, VOCABULARY, device="cuda") * 3).bfloat16()
    draws, changes = mixed_draws(rows), rules(rows)
    fast.ready(logits.device, logits.dtype, LIMIT)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = fast.next_tokens(logits, draws, limit=LIMIT, **changes)
        again = fast.next_tokens(logits, draws, limit=LIMIT)
    for _ in range(5):
        logits.copy_(torch.randn(rows, VOCABULARY, device="cuda") * 3)
        draws.positions.random_(0, 1 << 18)
        first.fill_(-7), again.fill_(-7)
        graph.replay()
        assert torch.equal(first, fast.next_tokens(logits, draws, limit=LIMIT, **changes))
        assert torch.equal(again, fast.next_tokens(logits, draws, limit=LIMIT))


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_what_the_bench_times_is_right(variant: Any):
    for rows in variant.rows:
        for case in sampling_case.cases(rows, torch.device("cuda")):
            drawn = case.by_cuda(None if variant.is_portable else variant.plan(rows))
            if drawn is not None:
                drawn.check()
