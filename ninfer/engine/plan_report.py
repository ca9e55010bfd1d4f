"""A memory plan for people and for programs: lines of a table, and a dict of JSON types."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ninfer.artifact import Identity
from ninfer.engine.card_plan import CardPlan, Target, flags_of
from ninfer.engine.plan import NOTHING_FITS, EnginePlan, remedies
from ninfer.engine.roof import SOURCE, Estimate
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


def chosen_dict(target: Target, one: CardPlan) -> dict[str, Any]:
    """The plan as JSON types, with the options, what gave way for them, and the estimate."""
    options = one.choice.options
    return {
        **plan_dict(one.plan, one.model, one.identity),
        "artifact": one.name,
        "device": target.device,
        "options": {
            item.name: str(value) if isinstance(value, Path) else value
            for item in fields(options)
            if (value := getattr(options, item.name)) is not None
        },
        "given_up": [asdict(item) for item in one.choice.gave_way],
        "estimate": None if one.estimate is None else {**asdict(one.estimate), "source": SOURCE},
    }


def chosen_lines(target: Target, one: CardPlan) -> list[str]:
    """The plan as text, with what gave way for the options and the estimate."""
    lines = plan_lines(one.plan, one.model, one.identity)
    if target.card is not None:
        lines = [f"device   {target.device}", *lines]
    if one.choice.gave_way:
        lines += ["", f"options  {flags_of(one.choice.options)}"]
        lines += [f"gave way: {item}" for item in one.choice.gave_way]
    if one.plan.memory.fits and one.estimate is not None:
        lines += ["", *_estimate_lines(one.estimate)]
    return lines


def cards_dict(target: Target, found: Sequence[CardPlan]) -> dict[str, Any]:
    """Plans of several artifacts as JSON types."""
    plans = [chosen_dict(target, one) for one in found]
    return {"device": target.device, "memory": target.memory, "plans": plans}


def cards_lines(target: Target, found: Sequence[CardPlan]) -> list[str]:
    """Plans of several artifacts as text: what each can do on the device, the best first."""
    lines = [f"device   {target.device}: {target.memory:,} bytes", ""]
    for one in found:
        lines += [f"{one.name}: {in_words(one)}"]
        if one.plan.memory.fits:
            lines += [f"  ninfer serve ... {flags_of(one.choice.options)}"]
            lines += [f"  gave way: {item}" for item in one.choice.gave_way]
    return [*lines, "", *_estimate_lines(None)]


def in_words(one: CardPlan) -> str:
    """What an artifact can do on a card, or by how much it misses, in one line."""
    memory, options = one.plan.memory, one.choice.options
    if not memory.fits:
        return f"does not fit: {memory.missing:,} bytes are missing with all given up"
    parts = [
        f"{options.max_context:,} tokens",
        f"{options.max_concurrency} at once",
        f"KV {memory.tokens:,} as {options.kv_dtype}",
        options.spec or "no drafts",
        "vision" if options.vision else "no vision",
    ]
    if memory.host:
        parts.append(f"{memory.host / _GIB:.1f} GiB on the host")
    if one.estimate is not None:
        parts.append(f"about {one.estimate.one:.0f} tok/s")
    return ", ".join(parts)


def _estimate_lines(found: Estimate | None) -> list[str]:
    """What the rates are, so that no one takes them for measurements."""
    note = (
        "tok/s are an estimate, not a measurement: bytes of a step over the card's stated "
        f"bandwidth, at the shares of {SOURCE}; drafts not counted"
    )
    if found is None:
        return [note]
    return [
        f"estimate {found.one:.1f} tok/s of one sequence at {found.context:,} tokens, "
        f"{found.all:.1f} of all; at most {found.bound:.1f} of one by bandwidth alone",
        note,
    ]
