"""A memory plan for people and for programs: lines of a table, and a dict of JSON types."""

from typing import Any

from ninfer.artifact import Identity
from ninfer.engine.plan import NOTHING_FITS, EnginePlan, remedies
from ninfer.runtime.memory_plan import ModelSizes

_GIB = 1 << 30


def plan_dict(plan: EnginePlan, model: ModelSizes, identity: Identity) -> dict[str, Any]:
    """The plan as JSON types; sizes are whole bytes, `would_fit` is empty when it fits."""
    memory, demand = plan.memory, plan.demand
    return {
        "model_id": identity.model_id,
        "weights_id": identity.weights_id,
        "fits": memory.fits,
        "memory": memory.memory,
        "margin": memory.margin,
        "needed": memory.total,
        "missing": memory.missing,
        "left": max(memory.memory - memory.margin - memory.total, 0),
        "parts": dict(memory.parts),
        "host": memory.host,
        "max_context": demand.max_context,
        "max_concurrency": demand.sequences,
        "weights": "decoded" if demand.decoded else "packed",
        "state_dtype": plan.options.state_dtype,
        "kv": {
            "dtype": demand.kv_format,
            "page_bytes": memory.page_bytes,
            "pages": memory.pages,
            "tokens": memory.tokens,
            "tokens_wanted": memory.tokens_wanted,
        },
        "gave_way": plan.announcement,
        "would_fit": [] if memory.fits else remedies(plan, model),
    }


def plan_lines(plan: EnginePlan, model: ModelSizes, identity: Identity) -> list[str]:
    """The plan as text: what was asked, bytes by part, and the verdict."""
    memory, demand = plan.memory, plan.demand
    form = "decoded" if demand.decoded else "packed"
    rows = [*memory.parts.items(), ("needed", memory.total)]
    rows += [("stays free", memory.margin), ("free now", memory.memory)]
    return [
        f"model    {identity}",
        f"context  {demand.max_context:,} tokens, {demand.sequences} at once, weights {form}",
        f"KV       {memory.tokens:,} tokens as {demand.kv_format}: {memory.pages:,} pages of "
        f"{memory.page_bytes:,} bytes",
        *([f"host     {memory.host:,} bytes of weights"] if memory.host else []),
        "",
        *(f"{name:18} {size:>17,} bytes {size / _GIB:9.2f} GiB" for name, size in rows),
        "",
        *_verdict(plan, model),
    ]


def _verdict(plan: EnginePlan, model: ModelSizes) -> list[str]:
    memory = plan.memory
    if memory.fits:
        left = memory.memory - memory.margin - memory.total
        gave_way = [] if plan.announcement is None else [f"gave way: {plan.announcement}"]
        return [*gave_way, f"fits: {left:,} bytes are left"]
    found = remedies(plan, model)
    would_fit = [f"would fit: {text}" for text in found] or [NOTHING_FITS]
    return [f"does not fit: {plan.shortage}", *would_fit]
