"""What an engine is, and how it does, as plain numbers for those who report on it."""

from dataclasses import dataclass, field
from typing import Any

from ninfer.engine.loader import LoadedModel
from ninfer.engine.options import EngineOptions
from ninfer.engine.resolve import Resolved
from ninfer.runtime import PAGE_SIZE, Runtime
from ninfer.runtime.load import RuntimeLoad


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What does not change while an engine lives."""

    model_id: str  # of the artifact; "" if it has none
    max_context: int  # tokens
    max_concurrency: int
    max_pending: int
    pending_seconds: float | None  # from its arrival in which a request must get a place
    kv_tokens: int  # places in the KV cache, for all sequences together
    kv_dtype: str
    device: str
    vision: bool
    spec: str | None
    draft_tokens: int  # per round at most; 0 without speculation


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """Load as of now, and counters since the start; all counters only grow."""

    load: RuntimeLoad
    prefix_lookups: int = 0
    prefix_hits: int = 0
    prefix_asked_tokens: int = 0  # of prompts that were looked up
    prefix_reused_tokens: int = 0
    host_bytes: int = 0  # of dropped prefixes that host memory keeps
    host_peak_bytes: int = 0
    host_capacity_bytes: int = 0
    transferred_bytes: int = 0  # between caches and host memory
    prefix_misses: dict[str, int] = field(default_factory=dict)
    decode_rounds: int = 0  # on the device
    graphs: int = 0  # of rounds, that exist
    plain_steps: dict[str, int] = field(default_factory=dict)  # from the host, by reason
    spec_rounds: int = 0
    spec_drafted: int = 0
    spec_accepted: int = 0
    spec_fallbacks: int = 0  # decode passes without drafts
    spec_accepted_at: tuple[int, ...] = ()  # by the draft's number in its round


def facts_of(options: EngineOptions, model: LoadedModel, resolved: Resolved) -> EngineFacts:
    """The facts of an engine that is about to start."""
    return EngineFacts(
        model_id="" if model.identity is None else model.identity.model_id,
        max_context=resolved.runtime.max_context,
        max_concurrency=resolved.runtime.state_slots,
        max_pending=resolved.runtime.max_pending,
        pending_seconds=resolved.runtime.pending_timeout,
        kv_tokens=resolved.runtime.pages * PAGE_SIZE,
        kv_dtype=options.kv_dtype,
        device=str(resolved.residency.device),
        vision=model.vision is not None,
        spec=options.spec,
        draft_tokens=resolved.runtime.window - 1,
    )


def snapshot_of(runtime: Runtime) -> EngineSnapshot:
    """The numbers as they are now; a step under way may move them meanwhile."""
    numbers: dict[str, Any] = {}
    if runtime.prefixes is not None:
        stats = runtime.prefixes.stats
        numbers |= {
            "prefix_lookups": stats.lookups,
            "prefix_hits": stats.hits,
            "prefix_asked_tokens": stats.prompt_tokens,
            "prefix_reused_tokens": stats.reused_tokens,
            "transferred_bytes": runtime.prefixes.transferred_bytes,
            "prefix_misses": {str(reason): n for reason, n in list(stats.reasons.items())},
        }
        if (host := runtime.prefixes.host) is not None:
            numbers |= {
                "host_bytes": host.bytes,
                "host_peak_bytes": host.peak_bytes,
                "host_capacity_bytes": host.capacity,
            }
    if runtime.rounds is not None:
        numbers |= {
            "decode_rounds": runtime.rounds.played,
            "graphs": runtime.rounds.player.captured,
            "plain_steps": {r.name.lower(): n for r, n in list(runtime.rounds.reasons.items())},
        }
    if runtime.speculation is not None:
        counters = runtime.speculation.counters
        numbers |= {
            "spec_rounds": counters.rounds,
            "spec_drafted": counters.drafted,
            "spec_accepted": counters.accepted,
            "spec_fallbacks": counters.fallback_steps,
            "spec_accepted_at": tuple(counters.accepted_per_position),
        }
    return EngineSnapshot(runtime.load(), **numbers)
