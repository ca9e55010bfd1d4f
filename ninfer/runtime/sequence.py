"""Sequence: what the runtime knows of one request, from its arrival to its last token."""

from dataclasses import dataclass, field
from enum import StrEnum

from ninfer.errors import NInferError
from ninfer.request import FinishReason, SamplingParams, TokenConstraint
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
    constraint: TokenConstraint | None = None
    spans: tuple[MediaSpan, ...] = ()  # media identity of the prompt
    match: PrefixMatch = field(default_factory=PrefixMatch)  # of its first admission; holds nothing
    borders: tuple[int, ...] = ()  # where its prefill stops for a prefix worth keeping

    @property
    def generated(self) -> int:
        """Number of tokens produced so far."""
        return len(self.tokens) - self.prompt_length

    @property
    def remaining(self) -> int:
        """Tokens that may still be produced."""
        return self.max_tokens - self.generated

    @property
    def decodes(self) -> bool:
        """Whether all tokens but the anchor are committed, so that new ones can be drawn."""
        return self.generated > 0 and self.cached == len(self.tokens) - 1

    def append(self, token: int) -> None:
        """Add a generated token."""
        self.tokens.append(token)
        self.counts[token] = self.counts.get(token, 0) + 1
