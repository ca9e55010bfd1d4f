"""What a v3 directory says of its objects: components, parameter bindings and uses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

# How far below 16 bits an input may be rounded where a parameter is used.
POLICIES: Final = ("A16Only", "AllowA8", "AllowA4")
# The component that every file has.
TEXT: Final = "text"
# The auxiliary of a use that this version knows: what an input is divided by before rounding.
INPUT_DIVISOR: Final = "activation_input_divisor"


class Part(NamedTuple):
    """Elements start:stop of an object in C order; the whole object when `span` is None."""

    object: str
    span: tuple[int, int] | None = None


# One parameter: its parts one after another.
Binding = tuple[Part, ...]


class Use(NamedTuple):
    """One input that meets one parameter, and what may be done to the input."""

    parameter: str
    input: str
    activation_policy: str
    auxiliaries: Mapping[str, Binding]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Which vocabulary rows a drafter proposes from; `rows` is 0 for all of them."""

    rows: int


@dataclass(frozen=True, slots=True)
class Component:
    """A part of the model: sizes with Hugging Face names, and its resources by role."""

    config: Mapping[str, Any]
    target: str | None = None
    resources: Mapping[str, str] = field(default_factory=dict)
    proposal: Proposal | None = None


@dataclass(frozen=True, slots=True)
class FileSpan:
    """One file of an artifact: None for the entry file, and the payload bytes it holds."""

    path: str | None
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class ModelMap:
    """Components by id, bindings by parameter name, uses, and the open notes of the writer."""

    components: Mapping[str, Component]
    bindings: Mapping[str, Binding]
    uses: tuple[Use, ...] = ()
    metadata: Mapping[str, Any] | None = None
    provenance: Mapping[str, Any] | None = None
