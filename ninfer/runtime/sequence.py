"""Sequence: what the runtime knows of one request, from its arrival to its last token."""

import math
from dataclasses import dataclass, field
from enum import StrEnum

from ninfer.errors import NInferError
from ninfer.request import (
    FinishReason,
    Media,
    MediaRun,
    SamplingParams,
    TokenConstraint,
    TokenForcer,
    TokenLogprob,
)
from ninfer.runtime.loop_guard import LoopGuard
from ninfer.runtime.media import PromptMedia
from ninfer.runtime.prefix_keys import MediaSpan
from ninfer.runtime.prefix_match import PrefixMatch


class Status(StrEnum):
    """Where a sequence is. A preempted one waits again and keeps its tokens."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens, limits and cache ownership of one request.

    `cached` is the committed frontier: tokens whose KV and recurrent state count. The token behind
    it, the anchor, has been emitted but not processed while the sequence decodes.
    """

    tokens: list[int]  # prompt and generated ids
    prompt_length: int
    sampling: SamplingParams
    pages: list[int]
    state_slot: int
    cached: int = 0
    counts: dict[int, int] = field(default_factory=dict)  # generated ids, for penalties
    media: PromptMedia | None = None
    max_tokens: int = 1
    stop_ids: frozenset[int] = frozenset()
    drafts: list[int] = field(default_factory=list)
    status: Status = Status.WAITING
    finish: FinishReason | None = None
    error: NInferError | None = None
    preemptions: int = 0
    lost: int = 0  # tokens that had been computed when it gave way
    constraint: TokenConstraint | None = None
    forcer: TokenForcer | None = None  # until it is done
    guard: LoopGuard | None = None  # ends it when it repeats itself
    top_logprobs: int | None = None  # alternatives beside each token's log-probability
    prompt_top: int | None = None  # the same for the prompt
    prompt_logprobs: list[TokenLogprob | None] = field(default_factory=lambda: [None])
    spans: tuple[MediaSpan, ...] = ()  # media identity of the prompt
    pictures: tuple[Media, ...] = ()  # media as they came; `media` has them encoded
    runs: tuple[MediaRun, ...] = ()  # which tokens stand for which rows of them
    cache_salt: bytes = b""  # what its cached prefix is kept apart by
    arrived: float = 0.0  # time of the runtime's clock
    expires: float = math.inf  # when the request's own deadline ends it
    match: PrefixMatch = field(default_factory=PrefixMatch)  # of its first admission; holds nothing
    borders: tuple[int, ...] = ()  # where its prefill stops for a prefix worth keeping
    leader: "Sequence | None" = None  # whose prompt, the same as its own, it waits for
    inherits: int = 0  # full pages that a fork holds for it until it starts

    @property
    def generated(self) -> int:
        """Number of tokens produced so far."""
        return len(self.tokens) - self.prompt_length

    @property
    def remaining(self) -> int:
        """Tokens that may still be produced."""
        return self.max_tokens - self.generated

    @property
    def is_encoded(self) -> bool:
        """Whether all media that its prefill needs are there."""
        return self.media is not None or not self.runs

    @property
    def decodes(self) -> bool:
        """Whether all tokens but the anchor are committed, so that new ones can be drawn."""
        return self.generated > 0 and self.cached == len(self.tokens) - 1

    def append(self, token: int) -> None:
        """Add a generated token."""
        self.tokens.append(token)
        self.counts[token] = self.counts.get(token, 0) + 1
