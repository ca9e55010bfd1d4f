"""How many replicas the load asks for: by requests for each place, and by starved KV caches."""

import math
from collections.abc import Iterable
from typing import Any, Final

# Share of its places that a replica should have in use.
_BUSY: Final = 0.75
REQUESTS: Final = "requests"  # running and waiting ones
PLACES: Final = "places"
STARVED: Final = "starved"  # requests that wait though a place is free: they lack KV pages


def replicas_for(
    current: int, requests: Iterable[float], places: Iterable[float], starved: Iterable[float]
) -> int:
    """Replicas for what is known of each of the `current` ones; `current` if nothing is known."""
    each = list(places)
    if not each:
        return current
    wanted = math.ceil(sum(requests) / (_BUSY * sum(each) / len(each)))
    if any(starved):
        # More places would not help on the same replicas, more memory does.
        wanted = max(wanted, current + 1)
    return max(1, wanted)


def policy(context: Any) -> tuple[int, dict[str, Any]]:
    """Ray Serve's form of it: the averages of what the replicas recorded.

    Delays and bounds are Ray Serve's own.
    """
    metrics = context.aggregated_metrics or {}
    known = (metrics.get(name, {}).values() for name in (REQUESTS, PLACES, STARVED))
    return replicas_for(context.target_num_replicas, *known), {}
