"""The parts of docs/memory.md on whole cards: what each artifact can do there, and KV on `tiny`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from ninfer.cards import Card, cards_named
from ninfer.engine.auto import Choice, choose
from ninfer.engine.options import EngineOptions
from ninfer.engine.registered import IDENTITIES, registered_sizes
from ninfer.engine.roof import SOURCE, estimate
from tools.kv_on_tiny import RIGHT, SHOWN
from tools.markdown import code, table

# GB of memory, as cards are sold.
SIZES: Final = (8, 12, 16, 24, 32, 48, 80, 96, 141)
NAMES: Final = ("rtx4060ti", "rtx3090", "rtx4090", "rtx5090", "L40S", "A100 SXM4", "h100", "h200")
_ASKED: Final = EngineOptions(Path("all"), weights="packed")
_BF16_BYTES: Final = 2
_GIB: Final = 1 << 30


@cache
def best(alias: str, gib: int) -> Choice:
    """What `ninfer plan --auto` chooses for an artifact on an idle card of so much memory."""
    memory = Card("any", 90, gib, None, None).usable_bytes
    asked = replace(_ASKED, artifact=Path(alias))
    model = registered_sizes(IDENTITIES[alias])
    return choose(asked, frozenset({"weights"}), model, memory, _BF16_BYTES)


def card_sections() -> Iterator[str]:
    """Lines of the sections, each with its heading."""
    yield from ("## Cards", "")
    yield (
        "What `ninfer plan --auto` chooses for each published artifact on an idle card: nominal "
        "memory less 2.5 % for the driver and 448 MiB for a context. Where nothing fits, the bytes "
        "that are missing when all is given up that can be. `--host-embeddings` and the like as "
        "in `ninfer plan`; its output says what each step was for."
    )
    rows = [_row(gib, alias, best(alias, gib)) for gib in SIZES for alias in IDENTITIES]
    head = ("GB", "artifact", "context", "at once", "KV tokens", "KV", "drafts", "vision")
    yield from ("", *table([*head, "also"], rows), "")
    yield from ("## Speed, as an estimate", "")
    yield (
        "Tokens a second of one sequence at 8,192 tokens (or the longest that fits), drafts not "
        "counted: the bytes that a step reads over the bandwidth that the maker states, at the "
        f"share that each kind of kernel had on one card ({SOURCE}). In brackets the bound, "
        "were every byte to come at full bandwidth. No card but that one has been measured, and "
        "no whole model on it."
    )
    yield from ("", *table(["card", "GB", "GB/s", *map(code, IDENTITIES)], _speeds()), "")
    yield from ("## KV formats on `tiny`", "")
    yield SHOWN
    yield from ("", *table(["task", *RIGHT], _right()), "")


def _row(gib: int, alias: str, found: Choice) -> Sequence[str]:
    memory, options = found.plan.memory, found.options
    if not memory.fits:
        lacking = f"{memory.missing:,} bytes are missing"
        return (str(gib), code(alias), *["-"] * 6, lacking)
    shown = ("host_embeddings", "host_vision", "prefill_chunk", "memory_margin", "state_dtype")
    lesser = {item.option: item for item in found.gave_way}
    also = [str(lesser[name]).split(":")[0] for name in shown if name in lesser]
    return (
        str(gib),
        code(alias),
        f"{options.max_context:,}",
        str(options.max_concurrency),
        f"{memory.tokens:,}",
        options.kv_dtype,
        options.spec or "none",
        "yes" if options.vision else "no",
        ", ".join(map(code, also)),
    )


def _speeds() -> Iterator[Sequence[str]]:
    for name in NAMES:
        for card in cards_named(name):
            yield (
                card.name,
                str(card.memory_gib),
                f"{card.bandwidth:,.0f}",
                *(_speed(alias, card) for alias in IDENTITIES),
            )


def _speed(alias: str, card: Card) -> str:
    found = best(alias, card.memory_gib)
    rate = estimate(card, registered_sizes(IDENTITIES[alias]), found.plan.demand)
    if not found.plan.memory.fits or rate is None:
        return "-"
    return f"{rate.one:.0f} ({rate.bound:.0f})"


def _right() -> Iterator[Sequence[str]]:
    tasks = list(dict.fromkeys(task for column in RIGHT.values() for task in column))
    for task in tasks:
        found = [column.get(task) for column in RIGHT.values()]
        yield (task, *("-" if pair is None else f"{pair[0]} of {pair[1]}" for pair in found))
