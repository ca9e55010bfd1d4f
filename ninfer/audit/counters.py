"""Counters of speculation on a server's metrics page, and what they say of one stretch of time."""

import re
from typing import Final

from ninfer.audit.record import Drafts

COUNTERS: Final = {
    "rounds": "vllm:spec_decode_num_drafts_total",
    "drafted": "vllm:spec_decode_num_draft_tokens_total",
    "accepted": "vllm:spec_decode_num_accepted_tokens_total",
}
_AT: Final = re.compile(
    r'^vllm:spec_decode_num_accepted_tokens_per_pos_total\{[^}]*position="([0-9]+)"[^}]*\} (\S+)',
    re.MULTILINE,
)


def counted_drafts(page: str) -> Drafts:
    """What the server has drafted since its start; zeros for a page without the counters."""
    counts = {name: _counter(page, metric) for name, metric in COUNTERS.items()}
    at = {int(place): int(float(value)) for place, value in _AT.findall(page)}
    return Drafts(**counts, accepted_at=tuple(at[place] for place in sorted(at)))


def drafts_since(before: Drafts, after: Drafts) -> Drafts | None:
    """What was drafted between two readings; None for nothing, or a server that was restarted."""
    if after.drafted <= before.drafted or after.rounds < before.rounds:
        return None
    old = (*before.accepted_at, *(0,) * (len(after.accepted_at) - len(before.accepted_at)))
    return Drafts(
        after.rounds - before.rounds,
        after.drafted - before.drafted,
        after.accepted - before.accepted,
        tuple(new - one for new, one in zip(after.accepted_at, old, strict=False)),
    )


def _counter(page: str, name: str) -> int:
    """The sum of a counter over its labels."""
    found = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)", page, re.MULTILINE)
    return int(sum(map(float, found)))
