"""Sequence: what the runtime knows of one running request."""

from dataclasses import dataclass, field

from ninfer.request import SamplingParams
from ninfer.runtime.media import PromptMedia


@dataclass(slots=True)
class Sequence:
    """Tokens, limits and cache ownership of one request.

    `cached` counts the tokens whose KV and recurrent state are committed. While decoding, the last
    token of `tokens` has been emitted but not yet processed.
    """

    tokens: list[int]  # prompt and generated ids
    prompt_length: int
    sampling: SamplingParams
    pages: list[int]
    state_slot: int
    media: PromptMedia | None = None
    cached: int = 0
    counts: dict[int, int] = field(default_factory=dict)  # generated ids, for penalties

    @property
    def generated(self) -> int:
        """Number of tokens produced so far."""
        return len(self.tokens) - self.prompt_length

    def append(self, token: int) -> None:
        """Add a generated token."""
        self.tokens.append(token)
        self.counts[token] = self.counts.get(token, 0) + 1
