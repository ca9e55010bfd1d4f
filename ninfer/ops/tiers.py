"""Which op has kernels of which tier on which architecture: the one table, as data."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# Compute capabilities times ten that kernels are compiled for; sm_87, 103 and 121 run them too.
ARCHITECTURES: Final = (80, 86, 89, 90, 100, 120)


@dataclass(frozen=True, slots=True)
class Tier:
    """A set of kernels under one name: the ops that have one and the cards that run it."""

    name: str
    ops: frozenset[str]
    architectures: frozenset[int]


# Plain Triton, of which the interpreter runs every line but the assembly that unpacks codes.
PORTABLE: Final = Tier(
    "portable",
    frozenset(
        {"linear", "linear_add", "linear_swiglu", "embed", "causal_conv_silu", "gdn_gating"}
        | {"gated_delta_rule", "delta_net"}
    ),
    frozenset({*ARCHITECTURES, 87, 103, 121}),
)
# Best first: an op runs by the first tier that has it on the card.
TIERS: Final[tuple[Tier, ...]] = (PORTABLE,)


def tiers_on(architecture: int) -> tuple[Tier, ...]:
    """The tiers with kernels for an architecture, best first; empty for one that is not known."""
    return tuple(tier for tier in TIERS if architecture in tier.architectures)


def tier_of(op: str, tiers: Iterable[Tier]) -> str | None:
    """The name of the first of some tiers that has an op."""
    return next((tier.name for tier in tiers if op in tier.ops), None)
