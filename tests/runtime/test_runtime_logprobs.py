"""Log-probabilities: of the model itself, one for each token, the same in any company."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from test_runtime_batching import BASE, BIASED, GREEDY, SAMPLED
from test_runtime_generation import load, prompt_of

from ninfer.errors import GenerationError
from ninfer.request import SamplingParams, TokenLogprob
from ninfer.runtime import Runtime, Sequence, SequenceRequest
from ninfer.runtime.logprobs import token_logprobs
from ninfer.runtime.prefix_match import MissReason
from ninfer.runtime.prefix_reuse import PrefixOptions
from ninfer.runtime.workspace import PROMPT_ROWS

MakeRuntime = Callable[..., Runtime]


@dataclass
class Seen:
    """What one sequence produced."""

    tokens: list[int]
    logprobs: list[TokenLogprob]
    prompt: list[TokenLogprob | None]


@pytest.fixture(scope="module", params=["dense", "moe"])
def runtime_of(request: pytest.FixtureRequest, micro_artifacts: dict[str, Path]) -> MakeRuntime:
    weights, config = load(micro_artifacts[request.param])

    def make(prefix: PrefixOptions | None = None, **changes: object) -> Runtime:
        return Runtime(weights, config, replace(BASE, **changes), prefix=prefix)

    return make


def asked(length: int, sampling: SamplingParams, tokens: int = 20, **rest: object):
    return SequenceRequest(
        tuple(prompt_of(length)), sampling, tokens, logprobs=3, prompt_logprobs=2, **rest
    )


def run(
    runtime: Runtime,
    requests: Iterable[SequenceRequest],
    draft: Callable[[Sequence], None] = lambda sequence: None,
) -> list[Seen]:
    seen = {runtime.submit(request): Seen([], [], []) for request in requests}
    while runtime.has_work:
        for sequence in seen:
            if sequence.decodes:
                draft(sequence)
        for progress in runtime.step():
            assert progress.error is None
            seen[progress.sequence].tokens += progress.tokens
            seen[progress.sequence].logprobs += progress.logprobs
    for sequence, found in seen.items():
        found.prompt = sequence.prompt_logprobs
    runtime.check()
    return list(seen.values())


REQUESTS = [
    asked(length, replace(sampling, seed=length))
    for length, sampling in (
        (1, GREEDY),
        (150, SAMPLED),
        (64, BIASED),
        (300, GREEDY),
        (33, BIASED),
        (200, SAMPLED),
    )
]


@pytest.fixture(scope="module")
def alone(runtime_of: MakeRuntime) -> list[Seen]:
    return [run(runtime_of(), [request])[0] for request in REQUESTS]


def test_every_token_has_an_entry(alone: list[Seen]) -> None:
    for request, seen in zip(REQUESTS, alone, strict=True):
        assert [entry.token_id for entry in seen.logprobs] == seen.tokens
        assert seen.prompt[0] is None and len(seen.prompt) == len(request.prompt)
        assert [entry.token_id for entry in seen.prompt[1:]] == list(request.prompt[1:])
        for entry in [*seen.logprobs, *seen.prompt[1:]]:
            values = [value for _, value in entry.top]
            assert entry.logprob <= values[0] <= 0 and values == sorted(values, reverse=True)
            assert dict(entry.top).get(entry.token_id, entry.logprob) == entry.logprob
        assert {len(entry.top) for entry in seen.logprobs} == {3}
        assert {len(entry.top) for entry in seen.prompt[1:]} <= {2}


def test_they_are_those_of_the_model_before_any_rule(
    runtime_of: MakeRuntime, alone: list[Seen]
) -> None:
    """Generated tokens, read as a prompt, have the same log-probabilities, whatever drew them."""
    for request, seen in zip(REQUESTS, alone, strict=True):
        whole = (*request.prompt, *seen.tokens)
        (again,) = run(runtime_of(), [SequenceRequest(whole, GREEDY, 1, prompt_logprobs=3)])
        known = again.prompt[len(request.prompt) :]
        for entry, expected in zip(seen.logprobs, known, strict=True):
            assert entry.logprob == pytest.approx(expected.logprob, abs=2e-4)
            assert [i for i, _ in entry.top] == [i for i, _ in expected.top]


def test_company_changes_no_bit(runtime_of: MakeRuntime, alone: list[Seen]) -> None:
    assert run(runtime_of(), REQUESTS) == alone


def test_f4_drafts_change_no_bit(runtime_of: MakeRuntime, alone: list[Seen]) -> None:
    """F4: one entry for each token, also where a block of drafts was accepted or cut."""
    draw, blocks = random.Random(3), []
    truth = {request.prompt: seen.tokens for request, seen in zip(REQUESTS, alone, strict=True)}

    def draft(sequence: Sequence) -> None:
        known = truth[tuple(sequence.tokens[: sequence.prompt_length])][sequence.generated :][:3]
        sequence.drafts = [t if draw.random() < 0.8 else draw.randrange(504) for t in known]
        blocks.append(len(sequence.drafts))

    assert run(runtime_of(), REQUESTS, draft) == alone
    assert sum(blocks) > 50


@pytest.mark.parametrize("chunk", [64, 256, 1024])
def test_f5_prefill_chunks_change_no_bit(
    runtime_of: MakeRuntime, alone: list[Seen], chunk: int
) -> None:
    """F5: the prompt is longer than a chunk, shorter, or as long."""
    assert run(runtime_of(prefill_chunk=chunk), REQUESTS) == alone


def test_preemption_changes_no_bit(runtime_of: MakeRuntime, alone: list[Seen]) -> None:
    """A preempted sequence computes its prompt again, and nothing is listed twice."""
    runtime = runtime_of(pages=7)
    preempted = []
    original = runtime._scheduler.preempt
    runtime._scheduler.preempt = lambda s: (preempted.append(s.cached), original(s))[1]
    assert run(runtime, REQUESTS) == alone
    assert preempted


def test_a_kept_prefix_is_not_reused_for_them_and_the_reason_is_given(
    runtime_of: MakeRuntime, alone: list[Seen]
) -> None:
    runtime = runtime_of(PrefixOptions(1 << 24, b"salt"))
    request = REQUESTS[3]
    for _ in range(2):
        assert run(runtime, [request]) == [alone[3]]
    assert runtime.prefixes is not None
    stats = runtime.prefixes.cache.stats
    assert stats.reused_tokens == 0
    assert stats.reasons == {MissReason.PROMPT_LOGPROBS: 2}
    free = replace(request, prompt_logprobs=None)
    (seen,) = run(runtime, [free])
    assert stats.reused_tokens > 200
    assert (seen.tokens, seen.logprobs) == (alone[3].tokens, alone[3].logprobs)


def test_they_end_at_a_stop_token_inside_a_block(
    runtime_of: MakeRuntime, alone: list[Seen]
) -> None:
    truth = alone[1]
    stop = truth.tokens[5]
    end = truth.tokens.index(stop) + 1

    def draft(sequence: Sequence) -> None:
        sequence.drafts = truth.tokens[sequence.generated :][:3]

    (seen,) = run(runtime_of(), [replace(REQUESTS[1], stop_ids=frozenset({stop}))], draft)
    assert (seen.tokens, seen.logprobs) == (truth.tokens[:end], truth.logprobs[:end])


def test_few_rows_of_logits_exist_at_once(runtime_of: MakeRuntime) -> None:
    runtime, counts = runtime_of(prefill_chunk=1024), []
    original = runtime._runner.head
    runtime._runner.head = lambda hidden: (counts.append(hidden.shape[0]), original(hidden))[1]
    run(runtime, [REQUESTS[3]])
    assert max(counts) <= PROMPT_ROWS and sum(counts) == 299


def test_a_prompt_row_that_is_not_finite_ends_the_request_only(
    micro_artifacts: dict[str, Path],
) -> None:
    weights, config = load(micro_artifacts["dense"])
    embedding = weights.embedding.clone()
    embedding[17] = float("nan")
    runtime = Runtime(replace(weights, embedding=embedding), config, BASE)
    bad = runtime.submit(SequenceRequest((1, 17, 3), GREEDY, 2, prompt_logprobs=0))
    good = runtime.submit(SequenceRequest((1, 2, 3), GREEDY, 2, prompt_logprobs=0))
    errors = {}
    while runtime.has_work:
        errors.update({p.sequence: p.error for p in runtime.step() if p.error})
    assert list(errors) == [bad] and isinstance(errors[bad], GenerationError)
    assert good.generated == 2
    runtime.check()


def test_values_are_the_logarithm_of_the_softmax_below_the_bound() -> None:
    logits = torch.randn(4, 700, generator=torch.Generator().manual_seed(1)) * 5
    logits[:, 650:] = 99
    found = token_logprobs(logits, [3, 0, 649, 12], 650, 20)
    expected = logits[:, :650].to(torch.float64).log_softmax(-1)
    for row, entry in enumerate(found):
        assert entry.logprob == pytest.approx(expected[row, entry.token_id].item(), abs=1e-5)
        values, ids = expected[row].topk(20)
        assert [i for i, _ in entry.top] == ids.tolist()
        assert [v for _, v in entry.top] == pytest.approx(values.tolist(), abs=1e-5)
