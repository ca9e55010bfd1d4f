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
    json: bool = option(False, "print one JSON object")
