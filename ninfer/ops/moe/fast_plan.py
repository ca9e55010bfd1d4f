"""Sizes of the CUDA kernels of the experts for a card, formats and token counts: pure arithmetic.

How the columns are split among warps decides the order of the sums. It depends on the width alone,
never on the number of tokens. All other sizes change time alone.
"""

from dataclasses import dataclass
from typing import Final

from ninfer.ops.linear.fast_plan import shared_limit
from ninfer.ops.linear.fragment_order import code_bytes, groups_of, scale_bytes

# The kernels copy in bulk, which cards before Hopper do not, and take more shared memory than
# consumer cards have.
ARCHITECTURES: Final = (90, 100)
# Up to so many tokens a token is one column of every product, and up to MOST one launch serves all.
FEW: Final = 8
MOST: Final = 64
MOST_TOP_K: Final = 32
MOST_EXPERTS: Final = 1024
_COLUMNS: Final = 8
_TILE: Final = 16
_KIB: Final = 1024
_RING: Final = 102 * _KIB
_MOST_WARPS: Final = 16
_GROUPS: Final = 4  # of a warp, whose activations stay in registers
_MOST_GROUPS: Final = 8  # of a warp that computes whole rows
_BARRIERS: Final = 192
# Warps and stages of the second pass, best first; the first that fit are taken.
_DOWN: Final = ((12, 2), (8, 2), (12, 1), (8, 1), (4, 1))


@dataclass(frozen=True, slots=True)
class Lists:
    """Room for the pairs and items that every block lists; see cuda/items.cuh."""

    pairs: int
    items: int
    experts: int
    few: bool

    @classmethod
    def of(cls, tokens: int, top_k: int, experts: int) -> "Lists":
        """Room for up to 8 tokens, or up to 64."""
        few = tokens <= FEW
        pairs = -(-(FEW if few else MOST) * top_k // 16) * 16
        items = min(experts, pairs) + (0 if few else pairs // _COLUMNS)
        return cls(pairs, items, -(-experts // 32) * 32, few)

    @property
    def bytes(self) -> int:
        """Shared memory of a block."""
        return 4 * (self.pairs + self.experts + (_COLUMNS + 1) * self.items) + 16

    @property
    def defines(self) -> dict[str, int]:
        """Compile-time constants."""
        return {
            "MOST_PAIRS": self.pairs,
            "MOST_ITEMS": self.items,
            "EXPERT_ROOM": self.experts,
            "FEW": int(self.few),
        }


@dataclass(frozen=True, slots=True)
class GateUpPlan:
    """Sizes of moe_gate_up; see cuda/gate_up.cu for what each means."""

    bits: tuple[int, int]  # routed, shared
    split: tuple[int, int]  # warps, groups of a warp
    lists: Lists
    shared_blocks: int
    ring: int = _RING
    reducers: int = 2
    twins: int = 2

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * (self.split[0] + self.reducers)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        sums = 2 * self.reducers * self.split[0] * 512
        return self.ring + sums + _BARRIERS + self.lists.bytes

    @property
    def defines(self) -> dict[str, int]:
        """Compile-time constants."""
        return self.lists.defines | {
            "ROUTED_BITS": self.bits[0],
            "SHARED_BITS": self.bits[1],
            "WARPS": self.split[0],
            "GROUPS": self.split[1],
            "RING_BYTES": self.ring,
            "REDUCERS": self.reducers,
            "TWINS": self.twins,
        }


@dataclass(frozen=True, slots=True)
class DownPlan:
    """Sizes of moe_down; see cuda/down.cu for what each means."""

    bits: tuple[int, int]
    groups: tuple[int, int]
    lists: Lists
    warps: int
    stages: int
    least_blocks: int = 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * (self.warps + 1)

    @property
    def tokens(self) -> int:
        """Most tokens of a call."""
        return FEW if self.lists.few else MOST

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        routed, shared = map(_stage, self.bits, self.groups)
        rows = self.lists.pairs + self.tokens
        rings = self.warps * self.stages * routed + shared + 32 * (self.warps + 1)
        return rings + rows * 4 * (_TILE + 1) + self.lists.bytes

    @property
    def defines(self) -> dict[str, int]:
        """Compile-time constants."""
        return self.lists.defines | {
            "ROUTED_BITS": self.bits[0],
            "SHARED_BITS": self.bits[1],
            "GROUPS": self.groups[0],
            "SHARED_GROUPS": self.groups[1],
            "WARPS": self.warps,
            "STAGES": self.stages,
            "MOST_TOKENS": self.tokens,
            "LEAST_BLOCKS": self.least_blocks,
        }


@dataclass(frozen=True, slots=True)
class RouterPlan:
    """Sizes of moe_router; see cuda/router.cu."""

    split: tuple[int, int]
    experts: int  # room, a multiple of 32

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.split[0]

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return self.split[0] * 512 + 16

    @property
    def defines(self) -> dict[str, int]:
        """Compile-time constants."""
        warps, groups = self.split
        return {"WARPS": warps, "GROUPS": groups, "EXPERT_ROOM": self.experts}


@dataclass(frozen=True, slots=True)
class Layer:
    """What the plans of a layer's experts depend on."""

    experts: int
    top_k: int
    dim: int
    inner: int
    shared_inner: int
    gate_up_bits: tuple[int, int]  # routed, shared
    down_bits: tuple[int, int]


def split_of(columns: int) -> tuple[int, int] | None:
    """Warps and groups of a warp for rows of whole groups; None where none fits.

    About eight warps: their sums have to be added up, and two kernels share a multiprocessor.
    """
    groups = groups_of(columns)
    fits = [w for w in range(1, _MOST_WARPS + 1) if groups % w == 0 and groups <= w * _GROUPS]
    if columns % 64 or not fits:
        return None
    warps = min(fits, key=lambda w: (abs(w - 8), w))
    return warps, groups // warps


def serves_layer(layer: Layer) -> bool:
    """Whether the kernels are made for layers of these sizes."""
    inner = (layer.inner, layer.shared_inner)
    return (
        split_of(layer.dim) is not None
        and layer.top_k <= min(MOST_TOP_K, layer.experts)
        and layer.experts <= MOST_EXPERTS
        and all(width % 64 == 0 and 0 < groups_of(width) <= _MOST_GROUPS for width in inner)
    )


def router_plan(columns: int, experts: int) -> RouterPlan:
    """Sizes of the routing, for any number of tokens."""
    groups = groups_of(columns)
    share = -(-groups // 8)
    return RouterPlan((-(-groups // share), share), -(-experts // 32) * 32)


def gate_up_plan(layer: Layer, tokens: int, multiprocessors: int) -> GateUpPlan:
    """Sizes of the first pass."""
    split = split_of(layer.dim)
    assert split is not None, layer
    lists = Lists.of(tokens, layer.top_k, layer.experts)
    return GateUpPlan(
        layer.gate_up_bits,
        split,
        lists,
        shared_blocks(layer, tokens, multiprocessors),
        ring=max(_RING, 2 * _stage(max(layer.gate_up_bits), split[0] * split[1])),
        twins=1 if layer.gate_up_bits[0] == 8 else min(2, split[1]),
    )


def shared_blocks(layer: Layer, tokens: int, multiprocessors: int) -> int:
    """Blocks for the shared expert, so that they read about as much as each of the others.

    Tiles of 8 tokens read it again each.
    """
    routed_bits, shared_bits = layer.gate_up_bits
    distinct = layer.experts * (1 - (1 - layer.top_k / layer.experts) ** tokens)
    routed = distinct * layer.inner * (routed_bits + 0.25)
    units = layer.shared_inner // _TILE * -(-tokens // _COLUMNS)
    shared = units * _TILE * (shared_bits + 0.5)
    most = multiprocessors * shared / (shared + routed)
    each = max(round(units / most), 1)
    return min(-(-units // each), multiprocessors - 1)


def down_plan(architecture: int, layer: Layer, tokens: int) -> DownPlan:
    """Sizes of the second pass. One token has a warp for each expert, all requested at once."""
    lists = Lists.of(tokens, layer.top_k, layer.experts)
    groups = groups_of(layer.inner), groups_of(layer.shared_inner)
    sizes = ((layer.top_k, 1), *_DOWN) if tokens == 1 and layer.top_k <= 12 else _DOWN
    for warps, stages in sizes:
        beside = 2 if tokens == 1 else 1
        plan = DownPlan(layer.down_bits, groups, lists, warps, stages, beside)
        if plan.shared_bytes <= shared_limit(architecture):
            return plan
    raise AssertionError(f"no plan for {layer} on sm_{architecture}")


def _stage(bits: int, groups: int) -> int:
    return -(-groups * (code_bytes(bits) + scale_bytes(bits)) // 128) * 128
