"""What a look into the prefix cache gives: how much can be reused, and why not more."""

from dataclasses import dataclass, field
from enum import StrEnum

from ninfer.request import PrefixMiss
from ninfer.runtime.config import PAGE_SIZE
from ninfer.runtime.state_snapshots import Snapshot


class MissReason(StrEnum):
    """Why the part of a prompt behind the reused one has to be prefilled."""

    DISABLED = "disabled"  # there is no prefix cache, or its budget is below one state
    PROMPT_LOGPROBS = "prompt_logprobs"  # they need a row of the model for every prompt token
    TOO_SHORT = "too_short"  # the prompt ends before a first page that could be reused
    NO_MATCH = "no_match"  # no cached conversation begins with the same token
    SALT_CHANGED = "salt_changed"  # the first page is cached under another salt
    NEW_TOKENS = "new_tokens"  # the cached conversation ends here, the prompt goes on
    TEMPLATE_CHANGED = "template_changed_at_token"  # the nearest cached conversation differs
    MEDIA_CHANGED = "media_changed"  # its tokens agree, a picture or video does not
    BOUNDARY_EVICTED = "boundary_evicted"  # was cached, and has been dropped
    NO_BOUNDARY = "no_boundary"  # pages are cached, but no state was kept behind them
    NO_ROOM = "no_room"  # a stored entry matched, and no pages were free to load it
    STORED_DAMAGED = "stored_entry_damaged"  # a stored entry is cut short or has wrong bytes
    STORED_CHANGED = "stored_layout_changed"  # a stored entry has other formats, sizes or salt


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """The first `length` tokens can be taken over: their pages, and the state behind them.

    `pages` are retained for the caller, who frees them as its own. `reason` is None when no longer
    prefix could have been reused. `token` is where the nearest cached conversation differs first.
    `shared` tokens have cached pages, whether or not a state was kept behind them.
    """

    length: int = 0
    pages: tuple[int, ...] = ()
    snapshot: Snapshot | None = None
    reason: MissReason | None = MissReason.DISABLED
    token: int | None = None
    shared: int = 0

    @property
    def miss(self) -> PrefixMiss | None:
        """The reason as clients see it; None for a full hit."""
        return None if self.reason is None else PrefixMiss(str(self.reason), self.token)


@dataclass(slots=True)
class PrefixStats:
    """Counters since the start, for reports."""

    lookups: int = 0
    hits: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    inserted: int = 0
    refused: int = 0  # entries that were offered and not taken
    dropped_states: int = 0
    dropped_pages: int = 0
    stored: int = 0  # entries written to a tier
    unstored: int = 0  # entries for whose way to a tier there was no time or place
    failed_writes: int = 0  # entries that a disk refused, or that its queue had no room for
    restored: int = 0  # entries read back from one
    reasons: dict[MissReason, int] = field(default_factory=dict)

    def count(self, match: PrefixMatch, prompt_tokens: int) -> None:
        """Add one look into the cache."""
        self.lookups += 1
        self.hits += match.length > 0
        self.prompt_tokens += prompt_tokens
        self.reused_tokens += match.length
        if match.reason is not None:
            self.reasons[match.reason] = self.reasons.get(match.reason, 0) + 1


def worth_keeping(
    length: int, match: PrefixMatch, marks: tuple[int, ...] = (), spacing: int = 0
) -> tuple[int, ...]:
    """Token counts at which a prefill of `length` tokens should stop for a snapshot, rising.

    They lie on the page grid behind what was reused: the last border that this prompt itself could
    reuse, the last one that a continuation could, the end of what it shares with cached
    conversations, the borders before `marks` (token indices where a later prompt may branch off,
    such as the header of an assistant turn), and one every `spacing` tokens if that is not 0.
    """
    wanted = {length - 1, length, match.shared, *marks}
    if spacing:
        wanted.update(range(spacing, length, spacing))
    borders = {token // PAGE_SIZE * PAGE_SIZE for token in wanted if token <= length}
    return tuple(sorted(border for border in borders if border > match.length))
