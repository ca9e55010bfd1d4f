"""The kernel benchmark times only what its check passed; kernels are played by the reference."""

import os
import time
from dataclasses import replace

import pytest
import torch

from ninfer.bench import (
    attention_case,
    draw_variants,
    linear_case,
    linear_chain,
    moe_variants,
    ops,
    ops_moe,
    ops_variants,
    sampling_case,
)
from ninfer.bench.isolated import isolated
from ninfer.bench.linear_case import Product, random_matrix, reference
from ninfer.bench.timer import Timing
from ninfer.errors import FormatError, UnsupportedError
from ninfer.ops.linear import fast
from ninfer.ops.linear.fast_plan import FEW, shared_limit, split_of, stream_plan
from ninfer.ops.linear.fragment_order import from_fragments, to_fragments
from ninfer.ops.linear.wide_plan import many_plan
from ninfer.ops.sampling import fast as draw_fast
from ninfer.ops.sampling import reference as draw_reference

CPU = torch.device("cpu")
TIMING = Timing(median=2e-5, fastest=1e-5, slowest=4e-5, repeats=3)


def right(call: fast.Call, *, wide: bool, plan: object = None) -> None:
    """What a right kernel writes."""
    found = reference(from_fragments(call.weight), call.x)
    if call.residual is not None:
        found = found + call.residual.double()
    if call.gated:
        gate, up = found.chunk(2, -1)
        found = torch.nn.functional.silu(gate) * up
    call.y.copy_(found)


def unwritten(call: fast.Call, *, wide: bool, plan: object = None) -> None:
    right(call, wide=wide)
    call.y[-1, -1] = float("nan")


def off(call: fast.Call, *, wide: bool, plan: object = None) -> None:
    right(call, wide=wide)
    call.y.mul_(1.02)


def fickle(call: fast.Call, *, wide: bool, plan: object = None) -> None:
    """Right, but a last bit differs with the number of tokens."""
    right(call, wide=wide)
    if call.y.shape[0] == 1:
        call.y.view(torch.int16)[0, 0] += 1


def early(call: fast.Call, *, wide: bool, plan: object = None) -> None:
    """Right, but not when launched early."""
    right(call, wide=wide)
    if call.dependent:
        call.y.view(torch.int16)[0, 0] += 1


@pytest.fixture
def case() -> Product:
    matrix = random_matrix("Q5", 64, 256, CPU)
    return Product("Q5", matrix, (to_fragments(matrix, 4),) * 2, torch.randn(64, 256).bfloat16())


@pytest.mark.parametrize("form", ["Q4", "Q5", "Q6", "W8"])
def test_random_weights_are_legal(form):
    random_matrix(form, 32, 256, CPU).validate("w")


def test_rows_of_a_checked_product(case, monkeypatch):
    monkeypatch.setattr(fast, "launch", right)
    monkeypatch.setattr(ops, "replayed", lambda calls, per=None: TIMING)
    rows = ops.product_rows(case, (1, 8, 64), 4.0)
    assert [(row.unit, row.shape["T"]) for row in rows] == [
        (unit, count) for count in (1, 8, 64) for unit in ("TB/s", "us")
    ]
    assert rows[0].value == pytest.approx(case.bytes / 2e-5 / 1e12)
    assert rows[0].reference_name == "memory read"
    assert rows[3].share == 1.0


@pytest.mark.parametrize(
    ("launch", "why"),
    [(unwritten, "not finite"), (off, "error norm"), (fickle, "rows differ")],
)
def test_a_wrong_product_is_never_timed(case, monkeypatch, launch, why):
    monkeypatch.setattr(fast, "launch", launch)
    monkeypatch.setattr(ops, "replayed", lambda *_: pytest.fail("timed"))
    with pytest.raises(FormatError, match=f"{why}.*not timed"):
        ops.product_rows(case, (1, 8, 64), 4.0)
    assert case.calls(1)


def small_chain(monkeypatch: pytest.MonkeyPatch) -> linear_chain.Chain:
    parts = [
        ("query_key", "Q4", 64, 256, False),
        ("value_z", "Q5", 512, 256, False),
        ("output", "Q5", 256, 384, False),
        ("gate_up", "Q4", 512, 256, True),
        ("down", "Q5", 256, 256, False),
    ]
    matrices = {name: random_matrix(form, n, k, CPU) for name, form, n, k, _ in parts}
    weights = {name: to_fragments(matrices[name], 4, paired=paired) for name, *_, paired in parts}
    return linear_chain.Chain(matrices, (weights, weights), torch.randn(16, 256).bfloat16())


@pytest.mark.parametrize("launch", [unwritten, off, early])
def test_a_wrong_chain_is_refused(monkeypatch, launch):
    chain = small_chain(monkeypatch)
    monkeypatch.setattr(fast, "launch", right)
    linear_chain.check(chain, 8)
    assert len(chain.calls(8, dependent=True)) == 2 * 5
    monkeypatch.setattr(fast, "launch", launch)
    with pytest.raises(FormatError, match=r"layer, .* of 8 tokens: .*not timed"):
        linear_chain.check(chain, 8)


def test_failures_are_reported_beside_what_passed(case, monkeypatch):
    def made(form, rows, columns, device, tier):
        if form == "Q5":
            raise FormatError("Q5: wrong; not timed")
        return case

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    roof = ops.rate_row("read", {}, "TB/s", 1, TIMING, ("", 1.0))
    monkeypatch.setattr(ops, "roofs", lambda device: [roof, roof])
    monkeypatch.setattr(ops, "driver_version", lambda: "13.0")
    monkeypatch.setattr(ops, "replayed", lambda calls, per=None: TIMING)
    monkeypatch.setattr(ops, "chain_rows", lambda device, read: [])
    monkeypatch.setattr(ops, "delta_rows", lambda device, read: [])
    monkeypatch.setattr(ops, "sampling_rows", lambda device, read: [])
    monkeypatch.setattr(ops, "cuda_rows", lambda device, read: [])
    monkeypatch.setattr(ops, "attention_rows", lambda *_: [])
    monkeypatch.setattr(linear_case, "product", made)
    monkeypatch.setattr(fast, "launch", right)
    monkeypatch.setattr(ops_moe, "all_rows", lambda *_: ([], ["mixture: wrong; not timed"]))
    found = ops.run()
    assert found.failures == ("Q5: wrong; not timed",) * 4 + ("mixture: wrong; not timed",)
    assert "random weights, no text" in found.note
    assert {row.name for row in found.rows[2:]} == {"linear Q5 CUDA"}
    assert len(found.rows) == 2 + 2 * (4 + 2 + 3 + 4 + 4 + 2 + 2)


# Triton 3.6's interpreter makes scalars of arrays for every range with a run-time bound.
@pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
def test_draws_are_checked_then_timed(monkeypatch):
    monkeypatch.setattr(sampling_case, "ROWS", (2,))
    made = sampling_case.cases
    monkeypatch.setattr(sampling_case, "cases", lambda rows, device: made(rows, device, 300, 290))
    monkeypatch.setattr(sampling_case, "replayed", lambda calls: TIMING)
    rows = sampling_case.sampling_rows(CPU, 4.0)
    assert len(rows) == 7 and {row.unit for row in rows} == {"us"}
    assert rows[0].name == "sample, all filters" and rows[0].value == pytest.approx(20)
    assert rows[0].reference == pytest.approx(2 * 300 * 2 / 4e12 * 1e6)


def test_draws_by_cuda_are_checked_then_timed(monkeypatch):
    made = sampling_case.cases
    monkeypatch.setattr(sampling_case, "ROWS", (2,))
    monkeypatch.setattr(sampling_case, "cases", lambda rows, device: made(rows, device, 300, 290))
    monkeypatch.setattr(sampling_case, "replayed", lambda calls: TIMING)
    monkeypatch.setattr(draw_fast, "ready", lambda *_: None)

    def right(logits, draws, *, plan, **named):
        return draw_reference.next_tokens(logits, draws, **named)

    monkeypatch.setattr(draw_fast, "next_tokens", right)
    rows = sampling_case.cuda_rows(CPU, 4.0)
    kinds = ("all filters", "top-p", "no cut", "greedy rows")
    assert [row.name for row in rows] == [f"sample, {kind} CUDA" for kind in kinds]

    def wrong(*arguments, **named):
        return right(*arguments, **named) + torch.tensor([0, 1])

    monkeypatch.setattr(draw_fast, "next_tokens", wrong)
    with pytest.raises(FormatError, match=r"CUDA of 2 rows: 1 ids differ.*not timed"):
        sampling_case.cuda_rows(CPU, 4.0)


@pytest.mark.parametrize("variant", draw_variants.VARIANTS, ids=lambda variant: variant.name)
def test_offered_sizes_of_draws_fit_and_compile_once_each(variant):
    for rows in variant.rows:
        plan = variant.plan(rows)
        assert plan.shared_bytes <= shared_limit(90) and plan.cluster * plan.chunk >= 248_077
        assert plan.listed % plan.threads == 0
    jobs = [job for job in draw_variants.draw_jobs() if job.variant == variant]
    assert {job.name for job in jobs} == set(draw_variants.NAMES)
    assert all(bool(job.programs(90)) != variant.is_portable for job in jobs)


def test_a_wrong_draw_is_never_timed(monkeypatch):
    case = next(c for c in sampling_case.cases(2, CPU, 300, 290) if c.name == "argmax")
    wrong = replace(case, call=lambda x: case.expected(x) + torch.tensor([0, 1]))
    monkeypatch.setattr(sampling_case, "cases", lambda rows, device: [wrong])
    monkeypatch.setattr(sampling_case, "replayed", lambda *_: pytest.fail("timed"))
    with pytest.raises(FormatError, match=r"argmax of 2 rows: 1 ids differ.*not timed"):
        sampling_case.sampling_rows(CPU, 4.0)


@pytest.mark.parametrize("form", ["int8", "bf16"])
def test_rows_of_checked_attention(monkeypatch, form):
    played = attention_case.reference.paged_attention
    monkeypatch.setattr(attention_case.portable, "paged_attention", played)
    monkeypatch.setattr(attention_case, "copies_for", lambda size: 2)
    monkeypatch.setattr(
        ops, "replayed", lambda calls, per=None: [call() for call in calls] and TIMING
    )
    rows = ops.attention_rows(form, (4, 2), 100, (1, 3), 4.0, CPU, form == "bf16")
    assert [(row.unit, row.shape["T"]) for row in rows] == [
        ("TB/s", 1), ("us", 1), ("TB/s", 3), ("us", 3)
    ]  # fmt: skip
    size = 100 * 2 * 2 * (256 * 2 if form == "bf16" else 256 + 8)
    assert rows[0].value == pytest.approx(size / 2e-5 / 1e12)
    assert rows[1].reference_name == ("torch SDPA" if form == "bf16" else "T=1")


@pytest.mark.parametrize("spoil", [lambda x: x * 1.02, lambda x: x * float("nan")])
def test_wrong_attention_is_not_timed(monkeypatch, spoil):
    played = attention_case.reference.paged_attention
    monkeypatch.setattr(
        attention_case.portable, "paged_attention", lambda *a, scale: spoil(played(*a, scale=scale))
    )
    monkeypatch.setattr(ops, "replayed", lambda *_: pytest.fail("timed"))
    monkeypatch.setattr(attention_case, "copies_for", lambda size: 1)
    with pytest.raises(FormatError, match="attention int8 of 100 positions for 1 tokens"):
        ops.attention_rows("int8", (4, 2), 100, (1, 3), 4.0, CPU, False)


def test_torch_sees_the_same_numbers(monkeypatch):
    monkeypatch.setattr(attention_case, "copies_for", lambda size: 1)
    for length, count in ((100, 1), (100, 3), (70, 70)):
        case = attention_case.attention("bf16", (4, 2), 64, length, count, CPU)
        want = attention_case.reference.paged_attention(
            case.q, case.caches[0], case.rows(count), scale=0.125
        )
        got = case.torch_calls(count)[0]().squeeze(0).transpose(0, 1)
        assert (got - want).norm() < 0.01 * want.norm()


def test_without_a_card_it_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for run in (ops.run, ops_variants.run):
        with pytest.raises(UnsupportedError, match="no NVIDIA GPU"):
            run()


@pytest.mark.parametrize(
    "job", ops_variants.all_jobs(), ids=lambda job: f"{job.name} {job.variant.name}"
)
def test_offered_variants_cover_their_columns_and_fit(job):
    bits, split = int(job.form[1]), job.variant.split
    assert split.slices * split.slice_groups == job.columns // 64
    for tokens in job.variant.tokens:
        plan = job.variant.plan(90, bits, tokens)
        assert plan.shared_bytes <= shared_limit(90)
        assert plan.threads <= 1024 and plan.token_tiles * 8 >= tokens
        if hasattr(plan, "stage_groups"):
            assert split.slice_groups % plan.stage_groups == 0


@pytest.mark.parametrize("variant", moe_variants.VARIANTS, ids=lambda variant: variant.name)
def test_offered_sizes_of_experts_fit(variant):
    for tokens in variant.tokens:
        first, second = variant.plans(tokens)
        assert max(first.shared_bytes, second.shared_bytes) <= shared_limit(90)
        assert max(first.threads, second.threads) <= 1024
        assert first.split[0] * first.split[1] == moe_variants.LAYER.dim // 64
    assert len(moe_variants.MixtureJob(variant).programs(90)) == 1 + 2 * len({*variant.tokens, 64})


def test_the_first_variants_of_a_shape_are_the_tables():
    first = moe_variants.VARIANTS[0]
    assert not first.first and not first.second
    for form, _, columns, variants in ops_variants.CASES:
        bits = int(form[1])
        for tokens in {count for variant in variants for count in variant.tokens}:
            first = next(v for v in variants if tokens in v.tokens)
            groups = split_of(90, bits, columns).slice_groups
            few = tokens <= FEW
            table = (
                stream_plan(90, bits, columns, tokens)
                if few
                else many_plan(90, bits, groups, tokens)
            )
            assert first.plan(90, bits, tokens) == table
            assert first.split == split_of(90, bits, columns)


def half(value: int) -> int:
    """Work that can hang, die and fail."""
    if value == 13:
        time.sleep(600)
    if value == 66:
        os._exit(1)
    if value % 2:
        raise FormatError(f"{value} is odd")
    return value // 2


def test_work_that_hangs_dies_or_fails_costs_itself_only():
    found = list(isolated([2, 3, 66, 4, 13, 6], half, 30.0))
    assert [(job, result) for job, result, _ in found] == [
        (2, 1),
        (3, None),
        (66, None),
        (4, 2),
        (13, None),
        (6, 3),
    ]
    whys = [why for *_, why in found]
    assert whys[1] == "FormatError: 3 is odd" and whys[2] == "its process died"
    assert whys[4] == "no answer within 30 s" and whys[0] == whys[3] == whys[5] == ""


def test_variants_without_a_result_are_failures(monkeypatch):
    jobs = ops_variants.all_jobs()[:3]
    answers = [{1: TIMING, 8: TIMING}, None, {1: Timing(4e-5, 4e-5, 4e-5, 3)}]
    answered = zip(jobs, answers, ("", "no answer within 30 s", ""), strict=True)
    monkeypatch.setattr(ops_variants, "isolated", lambda *_: answered)
    found = ops_variants.collected(jobs, "random weights, no text")
    assert found.failures == (f"{jobs[1].name} {jobs[1].variant.name}: no answer within 30 s",)
    assert [(row.shape["T"], row.share) for row in found.rows] == [(1, 1.0), (1, 2.0), (8, 1.0)]
