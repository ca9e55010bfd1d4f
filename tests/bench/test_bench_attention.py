"""Variants of attention: they fit a card, wrong ones are not timed, rows stand beside a table's."""

import pytest
import torch

from ninfer.bench import attention_case, attention_variants, ops
from ninfer.bench.attention_variants import Job, Variant, all_jobs, programs
from ninfer.bench.timer import Timing
from ninfer.errors import FormatError
from ninfer.ops.attention import fast
from ninfer.ops.attention.fast_plan import attend_plan
from ninfer.ops.linear.fast_plan import shared_limit

CPU = torch.device("cpu")
TIMING = Timing(median=2e-5, fastest=1e-5, slowest=4e-5, repeats=3)
JOB = Job("int8", (4, 2), 100, (1, 3), Variant("other", {"blocks": 2}))


@pytest.mark.parametrize("job", all_jobs(), ids=lambda job: f"{job.name} {job.variant.name}")
def test_every_variant_fits_the_card(job: Job):
    for count in job.tokens:
        plan = job.variant.plan(90, job.form, job.heads, count)
        assert plan.shared_bytes <= shared_limit(90)
        # As many blocks as the sizes name are on a multiprocessor at once.
        assert plan.blocks * (plan.shared_bytes + 1024) <= shared_limit(90) + 1024
        assert plan.join_shared_bytes <= 48 << 10 and 32 * plan.join_warps <= 1024


def test_the_first_variant_is_the_tables_and_names_are_apart():
    for job in all_jobs():
        if job.variant is attention_variants.VARIANTS[0]:
            group = job.heads[0] // job.heads[1]
            plan = job.variant.plan(90, job.form, job.heads, 4)
            assert plan == attend_plan(90, job.form, job.heads[1], group, 4 * group)
    names = [variant.name for variant in attention_variants.VARIANTS]
    assert len(set(names)) == len(names)
    found = programs(90, all_jobs())
    assert len({program.name for program in found}) == len(found) > 20


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch):
    """The CUDA form played by the reference, on a case without a card."""
    right = attention_case.reference.paged_attention
    monkeypatch.setattr(attention_case, "copies_for", lambda size: 1)
    case = attention_case.attention("int8", (4, 2), 256, 100, 3, CPU)
    want = attention_case.expected(case, 3)
    monkeypatch.setattr(attention_variants, "_case", lambda *_: (case, want))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    seen = []

    def attend(q, cache, rows, scale, plan):
        seen.append(plan)
        return right(q, cache, rows, scale=scale)

    monkeypatch.setattr(fast, "attend", attend)
    return seen


def test_a_variant_is_checked_and_timed_by_its_own_sizes(played, monkeypatch):
    monkeypatch.setattr(attention_variants, "replayed", lambda calls: calls[0]() is None or TIMING)
    assert attention_variants.timed(JOB) == {1: TIMING, 3: TIMING}
    assert {(plan.blocks, plan.heads, plan.group) for plan in played} == {(2, 2, 2)}


def test_a_wrong_variant_is_not_timed(played, monkeypatch):
    right = fast.attend
    monkeypatch.setattr(fast, "attend", lambda *a: right(*a) * 1.02)
    monkeypatch.setattr(attention_variants, "replayed", lambda *_: pytest.fail("timed"))
    with pytest.raises(FormatError, match="attention int8 of 100 positions for 1 tokens"):
        attention_variants.timed(JOB)


def test_rows_stand_beside_the_table_and_failures_are_named(monkeypatch):
    jobs = [Job("int8", (4, 2), 100, (1,), Variant(name)) for name in ("table", "a", "b")]
    slow = Timing(4e-5, 4e-5, 4e-5, 3)
    answers = [(jobs[0], {1: TIMING}, ""), (jobs[1], {1: slow}, ""), (jobs[2], None, "died")]
    monkeypatch.setattr(attention_variants, "all_jobs", lambda: jobs)
    monkeypatch.setattr(attention_variants, "programs", lambda *_: [])
    monkeypatch.setattr(attention_variants, "isolated", lambda *_: answers)
    found = attention_variants.run(90)
    assert [(round(row.value), round(row.reference)) for row in found.rows] == [(20, 20), (40, 20)]
    assert found.failures == ("attention int8 4/2 100 b: died",)


def test_the_benchmark_names_the_tier(monkeypatch):
    monkeypatch.setattr(fast, "paged_attention", attention_case.reference.paged_attention)
    monkeypatch.setattr(attention_case, "copies_for", lambda size: 1)
    monkeypatch.setattr(
        ops, "replayed", lambda calls, per=None: [call() for call in calls] and TIMING
    )
    rows = ops.attention_rows("fp8", (4, 2), 100, (1,), 4.0, CPU, False, ops.CUDA)
    assert {row.name for row in rows} == {"attention fp8 CUDA"}
