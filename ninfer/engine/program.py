"""What only programs ask of a generation."""

from dataclasses import dataclass

from ninfer.request import ConstraintSpec


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """Fields of a generation that no command line has."""

    constraint: ConstraintSpec | None = None  # instead of --json and --json-schema
    ignore_stops: bool = False  # the model's own end-of-turn ids do not end the answer
    min_tokens: int = 0  # generated before a stop id may come
    cache_salt: bytes = b""  # prefixes are shared only with requests of the same salt
