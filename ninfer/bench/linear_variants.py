"""Other sizes of the CUDA products than the tables': what they are called and how they are made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from ninfer.ops.linear.fast import Plan
from ninfer.ops.linear.fast_plan import Split, fitted
from ninfer.ops.linear.wide_plan import WidePlan, warpgroup_plan

_FEW: Final = (1, 8, 16)
_MANY: Final = (32, 64)


@dataclass(frozen=True, slots=True)
class Variant:
    """A fragment order and sizes to be launched with, for some token counts.

    `kind` is a key of the makers below; `changes` are what it takes.
    """

    kind: str
    split: Split
    tokens: tuple[int, ...] = _FEW
    changes: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What a row of results calls it."""
        split = f"{self.split.warps}x{self.split.groups}x{self.split.slices}"
        head = split if self.kind == "stream" else f"{self.kind} {split}"
        return " ".join([head, *(f"{name}:{value}" for name, value in self.changes.items())])

    def plan(self, architecture: int, bits: int, tokens: int) -> Plan:
        """The sizes for that many tokens."""
        return _MAKERS[self.kind](self, architecture, bits, tokens)


def stream(warps: int, groups: int, slices: int, **changes: int) -> Variant:
    """The streaming kernel with a split, and other sizes than those that fit it first."""
    return Variant("stream", Split(warps, groups, slices), changes=changes)


def warpgroups(
    split: Split, row_groups: int, subtiles: int, tokens: tuple[int, ...] = _MANY
) -> Variant:
    """Products of warpgroups on so many rows a block."""
    return Variant("warpgroup", split, tokens, {"row_groups": row_groups, "subtiles": subtiles})


def warps(split: Split, row_warps: int, stages: int) -> Variant:
    """Products of single warps."""
    return Variant("warps", split, _MANY, {"row_warps": row_warps, "stages": stages})


def _stream_plan(variant: Variant, architecture: int, bits: int, tokens: int) -> Plan:
    changes = variant.changes
    rings = {"ring": changes["ring"] * 1024} if "ring" in changes else {}
    found = fitted(architecture, bits, variant.split, ceil(tokens / 8), **rings)
    return replace(
        found,
        twins=changes.get("twins", found.twins),
        multiplier_registers=changes.get("multiplier_registers", found.multiplier_registers),
        clusters=bool(changes.get("clusters", found.clusters)),
    )


def _warpgroup_plan(variant: Variant, architecture: int, bits: int, tokens: int) -> Plan:
    groups = variant.split.slice_groups
    return warpgroup_plan(architecture, bits, groups, _token_tiles(tokens), **variant.changes)


def _warp_plan(variant: Variant, architecture: int, bits: int, tokens: int) -> Plan:
    return WidePlan(bits, token_tiles=max(_token_tiles(tokens), 4), **variant.changes)


def _token_tiles(tokens: int) -> int:
    """The least width in token tiles that a kernel for many tokens is made for."""
    return next(tiles for tiles in (2, 4, 8) if tokens <= 8 * tiles)


_MAKERS: Final[Mapping[str, Callable[[Variant, int, int, int], Plan]]] = {
    "stream": _stream_plan,
    "warpgroup": _warpgroup_plan,
    "warps": _warp_plan,
}
