"""What clients say about thinking, in all the ways they say it, to options of the template."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, TypeVar

from ninfer.engine import GenerationOptions, TextSide
from ninfer.engine.generation_options import EFFORTS
from ninfer.request import TemplateOptions
from ninfer.server.errors import Refusal

OFF: Final = EFFORTS[0]
_NOT_SAID: Final[Mapping[str, Any]] = MappingProxyType({})

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Thinking:
    """Wishes of one request; None: not said."""

    enabled: bool | None = None
    effort: str | None = None
    preserve: bool | None = None
    budget: int | None = None
    add_vision_id: bool = False


def one_of(**given: T | None) -> T | None:
    """The value that fields of one meaning agree on, None if none is given.

    Raises Refusal naming two that contradict each other.
    """
    said = {name: value for name, value in given.items() if value is not None}
    for name, value in said.items():
        first = next(iter(said))
        if value != said[first]:
            raise Refusal(
                f"{name} ({value!r}) contradicts {first} ({said[first]!r}); give one of them",
                code="conflicting_template_option",
                param=name,
            )
    return next(iter(said.values()), None)


def thinking_of(
    kwargs: Mapping[str, Any],
    *,
    enabled: Mapping[str, bool | None] = _NOT_SAID,
    effort: Mapping[str, str | None] = _NOT_SAID,
    preserve: Mapping[str, bool | None] = _NOT_SAID,
    budget: Mapping[str, int | None] = _NOT_SAID,
) -> Thinking:
    """What a body says: for each wish the fields that can say it, besides chat_template_kwargs.

    Raises Refusal naming two that contradict each other.
    """

    def agreed(said: Mapping[str, T | None], name: str) -> T | None:
        return one_of(**said, chat_template_kwargs=kwargs.get(name))

    return Thinking(
        enabled=agreed(enabled, "enable_thinking"),
        effort=agreed(effort, "reasoning_effort"),
        preserve=agreed(preserve, "preserve_thinking"),
        budget=agreed(budget, "thinking_budget"),
        add_vision_id=bool(kwargs.get("add_vision_id")),
    )


def apply(
    wishes: Thinking, options: GenerationOptions, text: TextSide, *, preserve: bool
) -> tuple[GenerationOptions, TemplateOptions]:
    """The generation's options and the template's for these wishes; `options` are the defaults.

    `preserve` is the server's default. Raises Refusal for an effort that is no word of ours, or
    wishes that contradict each other.
    """
    effort = wishes.effort
    if effort is not None and effort not in EFFORTS:
        raise Refusal(
            f"reasoning_effort {effort!r}: use one of {', '.join(EFFORTS)}",
            code="reasoning_effort_not_supported",
            param="reasoning_effort",
        )
    if wishes.enabled is not None and effort is not None and wishes.enabled == (effort == OFF):
        state = "on" if wishes.enabled else "off"
        raise Refusal(
            f"thinking is switched {state} and reasoning_effort is {effort!r}; give one of them",
            code="conflicting_template_option",
            param="reasoning_effort",
        )
    on = options.thinking if wishes.enabled is None else wishes.enabled
    if effort is not None:
        on = effort != OFF
    keep = wishes.preserve
    if keep is None and preserve and text.offers_preserving:
        keep = True
    template = TemplateOptions(
        enable_thinking=on,
        preserve_thinking=keep if text.offers_preserving else None,
        reasoning_effort=nearest(effort, text.efforts) if on and effort else None,
        add_vision_id=wishes.add_vision_id,
    )
    budget = options.thinking_budget if wishes.budget is None else wishes.budget
    return replace(options, thinking=on, thinking_budget=budget), template


def nearest(effort: str, offered: tuple[str, ...]) -> str | None:
    """The offered effort nearest to a wanted one, the stronger of two; None if none is offered.

    A template that knows no efforts thinks as it always does.
    """
    names = [name for name in offered if name != OFF]
    if not names:
        return None
    wanted = EFFORTS.index(effort)
    return min(names, key=lambda name: (abs(EFFORTS.index(name) - wanted), -EFFORTS.index(name)))
