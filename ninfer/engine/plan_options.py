"""What a user may ask of `ninfer plan` besides the engine's options."""

from dataclasses import dataclass

from ninfer.options import option


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What `ninfer plan` asks besides the engine's options."""

    device_memory: str | None = option(
        None,
        "free memory of the card to plan for, 24GiB for one",
        metavar="SIZE",
        unset="what is free on --device",
    )
    card: str | None = option(
        None,
        "card to plan for by name, rtx4090 for one: its memory less what the driver keeps, and "
        "tokens a second as an estimate",
        metavar="NAME",
        unset="the machine's own",
    )
    auto: bool = option(False, "choose the options that are not given, as ninfer serve --auto")
    json: bool = option(False, "print one JSON object")
