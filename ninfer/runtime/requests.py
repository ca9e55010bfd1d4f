"""What a caller asks of the runtime for one sequence, and what it hears of it."""

import math
from dataclasses import dataclass
from typing import Final

from ninfer.errors import NInferError, PromptError, UsageError
from ninfer.request import (
    REPETITION_BOUNDS,
    FinishReason,
    Media,
    MediaRun,
    SamplingParams,
    TokenConstraint,
    TokenForcer,
    TokenLogprob,
)
from ninfer.runtime.loop_guard import LoopGuard
from ninfer.runtime.prefix_keys import media_spans
from ninfer.runtime.sequence import Sequence


@dataclass(frozen=True, slots=True)
class SequenceRequest:
    """A prompt and how to continue it.

    `runs` say which prompt tokens stand for which rows of `media`. `max_tokens` must not exceed
    `Runtime.output_capacity`. `deadline` is in seconds from `arrived`, a time of the runtime's
    clock; without `arrived` the request arrives when it is submitted. `logprobs` asks for the
    log-probability of each generated token and of so many best ones, `prompt_logprobs` for those of
    the prompt, which then reuses no prefix.
    """

    prompt: tuple[int, ...]
    sampling: SamplingParams
    max_tokens: int
    stop_ids: frozenset[int] = frozenset()
    media: tuple[Media, ...] = ()
    runs: tuple[MediaRun, ...] = ()
    constraint: TokenConstraint | None = None
    forcer: TokenForcer | None = None
    loop_guard: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    deadline: float | None = None
    arrived: float | None = None
    cache_salt: bytes = b""  # prefixes are shared only with requests of the same salt


@dataclass(frozen=True, slots=True)
class Progress:
    """New tokens of one sequence in one step. With `error` the sequence has ended by it."""

    sequence: Sequence
    tokens: tuple[int, ...]
    finish: FinishReason | None = None
    error: NInferError | None = None
    logprobs: tuple[TokenLogprob, ...] = ()  # one for each token if asked for


def new_sequence(request: SequenceRequest, now: float) -> Sequence:
    """The sequence of a request that is submitted at `now`, a time of the runtime's clock."""
    arrived = now if request.arrived is None else request.arrived
    return Sequence(
        list(request.prompt),
        len(request.prompt),
        request.sampling,
        [],
        -1,
        max_tokens=request.max_tokens,
        stop_ids=request.stop_ids,
        constraint=request.constraint,
        forcer=request.forcer,
        guard=LoopGuard() if request.loop_guard else None,
        top_logprobs=request.logprobs,
        prompt_top=request.prompt_logprobs,
        spans=media_spans(request.runs, request.media),
        pictures=request.media,
        runs=request.runs,
        arrived=arrived,
        cache_salt=request.cache_salt,
        expires=math.inf if request.deadline is None else arrived + request.deadline,
    )


_BOUNDS: Final = {
    "temperature": (0.0, math.inf),
    "top_p": (0.0, 1.0),
    "top_k": (0, math.inf),
    "min_p": (0.0, 1.0),
    # What leaves every logit finite in float32.
    "presence_penalty": (-100.0, 100.0),
    "frequency_penalty": (-100.0, 100.0),
    "repetition_penalty": REPETITION_BOUNDS,
    "seed": (0, 2**64 - 1),
}


def check_sampling(params: SamplingParams, addressable: int) -> None:
    """Refuse values that no draw is defined for, which would otherwise fail a pass of many.

    A bias is for ids below `addressable`. Raises UsageError naming the parameter.
    """
    for name, (low, high) in _BOUNDS.items():
        value = getattr(params, name)
        # Written so that NaN is outside too.
        if not (low <= value <= high and math.isfinite(value)):
            raise UsageError(f"{name} {value}: must be finite and between {low} and {high}")
    for bias in params.logit_bias:
        if not (0 <= bias.token_id < addressable and math.isfinite(bias.value)):
            raise UsageError(
                f"logit_bias {bias.token_id}={bias.value}: must be a finite number for an id in "
                f"0..{addressable - 1}"
            )


def check_prompt(request: SequenceRequest, vocab_rows: int, *, vision: bool) -> None:
    """Refuse a prompt that the model cannot read. Raises PromptError naming the place."""
    assert request.prompt
    for place, token in enumerate(request.prompt):
        if not 0 <= token < vocab_rows:
            raise PromptError(f"prompt token {place} is {token}: the model has {vocab_rows} ids")
    if request.runs and not vision:
        raise PromptError("the prompt has media, but the vision tower is not loaded; use --vision")
    end = 0
    for run in request.runs:
        if not 0 <= run.media < len(request.media):
            raise PromptError(f"media {run.media} of the prompt: only {len(request.media)} came")
        if run.start < end or run.start + run.length > len(request.prompt):
            raise PromptError(
                f"media {run.media} of the prompt: its tokens {run.start} to "
                f"{run.start + run.length - 1} are out of order or behind the prompt's end"
            )
        end = run.start + run.length
