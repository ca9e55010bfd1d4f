"""The most that a model can do in some memory: options chosen by giving up what hurts least.

It begins with all that the model offers and takes steps down a ladder until the plan fits. Then it
goes back up, the last step first, wherever that fits after all, and lengthens the context as far as
it goes. So every step that is left is needed, and the bytes that it was needed for are known.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from ninfer.engine.options import EngineOptions
from ninfer.engine.plan import EnginePlan, plan_engine
from ninfer.options import flag_of
from ninfer.runtime.memory_plan import ModelSizes

_SEQUENCES: Final = 4
_CONTEXT_STEP: Final = 1024
_DRAFTERS: Final = ("mtp", "dflash2", "dflash")
# Options and the value of each step, the one that hurts least first.
_LADDER: Final[tuple[tuple[str, Any], ...]] = (
    ("kv_dtype", "int8"),
    ("max_concurrency", 2),
    ("max_context", 131_072),
    ("max_concurrency", 1),
    ("max_context", 65_536),
    ("host_vision", True),
    ("prefill_chunk", 512),
    ("max_context", 32_768),
    ("host_embeddings", True),
    ("vision", False),
    ("prefill_chunk", 128),
    ("max_context", 16_384),
    ("spec", None),
    ("prefix_cache_mib", 64),
    ("max_context", 8192),
    ("memory_margin", "512MiB"),
    ("state_dtype", "bf16"),
    ("kv_dtype", "int4"),
    ("memory_margin", "256MiB"),
    ("prefix_cache_mib", 0),
    ("max_context", 4096),
    ("max_context", 2048),
)


@dataclass(frozen=True, slots=True)
class GaveWay:
    """An option that is less than the model offers, and by how many bytes the offer misses."""

    option: str
    wish: Any
    value: Any
    missing: int

    def __str__(self) -> str:
        flag = flag_of(self.option, None)
        if isinstance(self.wish, bool):
            now, wish = (flag, "without") if self.value else (f"no {flag}", "with")
            wish = f"{wish} it"
        else:
            now = f"no {flag}" if self.value is None else f"{flag} {self.value}"
            wish = f"with {self.wish}"
        return f"{now}: {wish}, {self.missing:,} bytes are missing"


@dataclass(frozen=True, slots=True)
class Choice:
    """Options that were chosen, their plan, and what gave way; check whether the plan fits."""

    options: EngineOptions
    plan: EnginePlan
    gave_way: tuple[GaveWay, ...]


def choose(
    asked: EngineOptions,
    given: Collection[str],
    model: ModelSizes,
    memory: int,
    activation_bytes: int,
) -> Choice:
    """The best options for `memory` bytes; those named in `given` stay as they were asked for.

    Raises UsageError naming a given option that does not suit the model.
    """

    def planned(options: EngineOptions) -> EnginePlan:
        return plan_engine(options, model, memory, activation_bytes)

    def fits(options: EngineOptions) -> bool:
        return planned(options).memory.fits

    wish = wishes(asked, given, model)
    options, taken = wish, []
    for name, value in _LADDER:
        if fits(options):
            break
        if name not in given and _is_less(options, name, value):
            taken.append((options, name))
            options = _with(options, name, value)
    else:
        if not fits(options):
            return Choice(options, planned(options), ())
    options = _back_up(options, taken, fits)
    if "max_context" not in given:
        options = _longest(options, wish.max_context, fits)
    return Choice(options, planned(options), tuple(_given_up(wish, options, planned)))


def wishes(asked: EngineOptions, given: Collection[str], model: ModelSizes) -> EngineOptions:
    """All that a model offers, where nothing else was asked for."""
    drafter = next((name for name in _DRAFTERS if name in model.weights), "lookup")
    offers: dict[str, Any] = {
        "max_context": model.config.text.context,
        "max_concurrency": _SEQUENCES,
        "vision": "vision" in model.weights,
        "spec": drafter,
    }
    if "kv_capacity" in given and asked.kv_capacity is not None:
        offers["max_context"] = min(offers["max_context"], asked.kv_capacity)
    if {"draft_tokens", "lm_head_draft"} & set(given) and drafter == "lookup":
        del offers["spec"]
    return replace(asked, **{name: x for name, x in offers.items() if name not in given})


def _is_less(options: EngineOptions, name: str, value: Any) -> bool:
    """Whether a step changes something, and for less."""
    now = getattr(options, name)
    if name == "host_vision" and not options.vision:
        return False
    if name == "spec" and (options.draft_tokens is not None or options.lm_head_draft):
        return False
    if name == "kv_dtype":
        return now not in ("int4", value)
    if isinstance(value, int) and not isinstance(value, bool):
        return bool(now > value)
    return bool(now != value)


def _with(options: EngineOptions, name: str, value: Any) -> EngineOptions:
    """A step; without vision no tower is in host memory."""
    changes = {name: value}
    if name == "vision" and not value:
        changes["host_vision"] = False
    return replace(options, **changes)


def _back_up(
    options: EngineOptions,
    taken: list[tuple[EngineOptions, str]],
    fits: Callable[[EngineOptions], bool],
) -> EngineOptions:
    """Undo steps that were not needed, the last one first."""
    for before, name in reversed(taken):
        changes = {name: getattr(before, name)}
        if name == "vision":
            changes["host_vision"] = before.host_vision
        if name == "host_vision" and not options.vision:
            continue
        tried = replace(options, **changes)
        if fits(tried):
            options = tried
    return options


def _longest(
    options: EngineOptions, most: int, fits: Callable[[EngineOptions], bool]
) -> EngineOptions:
    """With the longest context that fits, in steps that people ask for."""
    low, high = options.max_context // _CONTEXT_STEP, most // _CONTEXT_STEP
    while low < high:
        middle = (low + high + 1) // 2
        if fits(replace(options, max_context=middle * _CONTEXT_STEP)):
            low = middle
        else:
            high = middle - 1
    return replace(options, max_context=max(low * _CONTEXT_STEP, options.max_context))


def _given_up(
    wish: EngineOptions, options: EngineOptions, planned: Callable[[EngineOptions], EnginePlan]
) -> Iterator[GaveWay]:
    for name in dict.fromkeys(name for name, _ in _LADDER):
        wanted, value = getattr(wish, name), getattr(options, name)
        if wanted == value or (name == "host_vision" and not wish.vision):
            continue
        missing = planned(_with(options, name, wanted)).memory.missing
        yield GaveWay(name, wanted, value, missing)
