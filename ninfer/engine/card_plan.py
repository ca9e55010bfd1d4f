"""Plans for a card by its name or for the machine's own: what fits, how fast it may be, and why."""

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import torch

from ninfer.artifact import Identity
from ninfer.cards import Card, cards_named, find_card
from ninfer.engine.auto import Choice, choose
from ninfer.engine.options import EngineOptions
from ninfer.engine.plan import EnginePlan, plan_engine
from ninfer.engine.registered import IDENTITIES, model_of, registered_sizes
from ninfer.engine.resolve import free_bytes, resolve_device, resolve_dtype
from ninfer.engine.roof import Estimate, estimate
from ninfer.errors import UsageError
from ninfer.log import get_logger
from ninfer.models.config import stretched
from ninfer.runtime.memory_plan import ModelSizes

log = get_logger(__name__)

# Part of the memory that options are not chosen for: what is free may change until they are used.
_SPARE: Final = 64


@dataclass(frozen=True, slots=True)
class Target:
    """What is planned for: bytes, the format of activations there, and which card it is."""

    memory: int
    activation_bytes: int
    card: Card | None
    device: str  # in words
    is_own: bool = False  # the memory is what this machine has free now


@dataclass(frozen=True, slots=True)
class CardPlan:
    """One artifact on a target; `gave_way` only where options were chosen for it."""

    name: str
    identity: Identity
    model: ModelSizes
    choice: Choice
    estimate: Estimate | None

    @property
    def plan(self) -> EnginePlan:
        """The plan itself."""
        return self.choice.plan


def target_of(options: EngineOptions, name: str | None, memory: int | None) -> Target:
    """The card of `--card`, else the device of `--device`; `memory` is what was said to be free.

    A name of several cards means the one with the least memory, unless `memory` tells which. Raises
    UsageError for a name that is not in the table.
    """
    if name is None:
        is_stated = memory is not None and options.device != "cpu"
        device = torch.device("cuda") if is_stated else resolve_device(options.device)
        itemsize = resolve_dtype(options.activations, device).itemsize
        card = None if is_stated or device.type != "cuda" else _own_card(device)
        free = free_bytes(device) if memory is None else memory
        words = "a card" if is_stated else str(device)
        return Target(free, itemsize, card, words, is_own=memory is None)
    found = cards_named(name)
    if not found:
        raise UsageError(
            f"--card {name}: not in the table of cards; leave it out and give --device-memory"
        )
    stated = None if memory is None else find_card(name, memory / 2**30)
    card = stated or min(found, key=lambda one: (one.memory_gib, one.bandwidth or 0))
    itemsize = resolve_dtype(options.activations, torch.device("cuda")).itemsize
    others = sorted({f"{one.name} of {one.memory_gib} GiB" for one in found if one != card})
    words = f"{card.name} of {card.memory_gib} GiB"
    if others and stated is None:
        words += f" ({name} may also be {', '.join(others)}; --device-memory tells)"
    return Target(card.usable_bytes if memory is None else memory, itemsize, card, words)


def _own_card(device: torch.device) -> Card | None:
    found = torch.cuda.get_device_properties(device)
    return find_card(found.name, found.total_memory / 2**30)


def plan_one(options: EngineOptions, target: Target, given: Collection[str] | None) -> CardPlan:
    """The artifact of the options on a target; `given` None takes all options as they are.

    Raises as `model_of` and `plan_engine` do.
    """
    name = str(options.artifact)
    model, identity = model_of(name)
    return _card_plan(name, identity, model, options, target, given)


def plan_all(options: EngineOptions, target: Target, given: Collection[str]) -> list[CardPlan]:
    """Every registered artifact on a target: those that fit first, with the most context first.

    An artifact that an option in `given` does not suit is left out.
    """
    found = []
    for alias, identity in IDENTITIES.items():
        asked = replace(options, artifact=Path(alias))
        try:
            model = registered_sizes(identity)
            found.append(_card_plan(alias, identity, model, asked, target, given))
        except UsageError as error:
            log.warning("%s: %s", alias, error)
    return sorted(found, key=_rank)


def _rank(one: CardPlan) -> tuple[int, int, int]:
    return one.plan.memory.missing, len(one.choice.gave_way), -one.choice.options.max_context


def _card_plan(
    name: str,
    identity: Identity,
    model: ModelSizes,
    options: EngineOptions,
    target: Target,
    given: Collection[str] | None,
) -> CardPlan:
    model = replace(model, config=stretched(model.config, options.yarn_factor))
    spare = target.memory // _SPARE if target.is_own and given is not None else 0
    sizes = (model, target.memory - spare, target.activation_bytes)
    if given is None:
        choice = Choice(options, plan_engine(options, *sizes), ())
    else:
        choice = choose(options, given, *sizes)
    rate = None if target.card is None else estimate(target.card, model, choice.plan.demand)
    return CardPlan(name, identity, model, choice, rate)


def chosen(options: EngineOptions, given: Collection[str]) -> EngineOptions:
    """The options of `--auto` for this machine, each that gave way in the log.

    Raises UsageError when nothing fits, naming the bytes, and as `plan_one` does.
    """
    one = plan_one(options, target_of(options, None, None), given)
    memory = one.plan.memory
    if not memory.fits:
        raise UsageError(
            f"--auto: {memory.missing:,} bytes are missing with all that may give way given up "
            f"({flags_of(one.choice.options)}); take a smaller model or a larger device"
        )
    log.info("--auto: %s", flags_of(one.choice.options))
    for given_up in one.choice.gave_way:
        log.warning("--auto: %s", given_up)
    return one.choice.options


def flags_of(options: EngineOptions) -> str:
    """Options that are not the defaults, as one writes them on a command line."""
    defaults = EngineOptions(options.artifact)
    names = [spec.name for spec in fields(defaults)]
    words = (_flag(name, getattr(options, name), getattr(defaults, name)) for name in names)
    return " ".join(word for word in words if word)


def _flag(name: str, value: Any, default: Any) -> str:
    if value == default:
        return ""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag} {value}"
