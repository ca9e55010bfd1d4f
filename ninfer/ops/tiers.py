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


_LINEAR: Final = frozenset({"linear", "linear_add", "linear_swiglu", "embed"})
_RECURRENT: Final = frozenset({"causal_conv_silu", "gdn_gating", "gated_delta_rule", "delta_net"})
_SAMPLING: Final = frozenset(
    {"penalise", "add_bias", "mask", "finite_rows", "argmax", "draw", "sample", "next_tokens"}
    | {"uniforms", "logprobs", "top_logprobs"}
)
_ATTENTION: Final = frozenset(
    {"paged_attention", "block_attention", "slice_attention", "write_kv", "read_kv"}
)
_DRAFTS: Final = frozenset(
    {"indexed_argmax", "indexed_top", "edge_scores", "tempered_softmax"}
    | {"accept_drafts", "block_rows", "dynamic_conv"}
)

_ROUTING: Final = frozenset({"route_topk", "route_experts", "sparse_moe"})
_ROWS: Final = frozenset(
    {
        *("rmsnorm", "add_rmsnorm", "gated_rmsnorm", "l2norm", "mrope"),
        *("silu_mul", "sigmoid_mul", "add"),
    }
)
# Plain Triton, of which the interpreter runs every line but the assembly that unpacks codes.
PORTABLE: Final = Tier(
    "portable",
    _LINEAR | _ATTENTION | _RECURRENT | _ROUTING | _ROWS | _SAMPLING | _DRAFTS,
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
