"""The five launches by which a token of each row is drawn, and the memory between them."""

from dataclasses import dataclass, field
from typing import Any, Final

import torch
import triton
from torch import Tensor

from ninfer.errors import UnsupportedError
from ninfer.ops.launch import launch
from ninfer.ops.sampling.kernels import decide, narrow, prepare
from ninfer.ops.sampling.kernels.bins import BINS, COPIES, SETTINGS
from ninfer.ops.tensors import AllowedTokens, TokenBias, TokenPenalties

# Logits of a program. A row's parts follow from it: one size for all.
BLOCK: Final = 2048
# Logits that are ranked by comparing all with all; more, and the row is looked through whole.
ROOM: Final = 16384
# Ids up to which sums of weights fit 63 bits.
_MOST_IDS: Final = 1 << 18
# Programs that rank: of a row at least and at most, and of all rows together.
_RANKERS: Final = (8, 64, 256)
_RANKED: Final[dict[str, Any]] = {"OWN": 64, "OTHERS": 64, "num_warps": 4}
# No sum and product in one rounding: rules must tie logits as the reference does, and the five
# launches agree on every bin and weight.
EXACT: Final[dict[str, Any]] = {"enable_fp_fusion": False}
_CHUNK: Final = 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """How each row draws, dense [R] tensors on its device: by u, or by what u is made of."""

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    u: Tensor | None = None
    seeds: Tensor | None = None
    positions: Tensor | None = None
    purposes: Tensor | None = None

    @property
    def values(self) -> tuple[Tensor | None, ...]:
        """In the order of the kernel's parameters."""
        cuts = (self.temperature, self.top_k, self.top_p, self.min_p)
        return (*cuts, self.u, self.seeds, self.positions, self.purposes)


@dataclass(frozen=True, slots=True)
class Rules:
    """What changes the logits before a draw."""

    bias: TokenBias | None = None
    penalties: TokenPenalties | None = None
    allowed: AllowedTokens | None = None

    @property
    def switches(self) -> dict[str, bool]:
        """Which of them there are, as constants of the kernel."""
        return {
            "HAS_BIAS": self.bias is not None,
            "HAS_PENALTIES": self.penalties is not None,
            "HAS_ALLOWED": self.allowed is not None,
        }

    @property
    def values(self) -> tuple[Tensor | int | None, ...]:
        """In the order of the kernel's parameters: planes, then lengths of rows."""
        planes: list[Tensor | None] = [None] * 10
        lengths = [0, 0, 0]
        if self.bias is not None:
            planes[:2] = self.bias.ids, self.bias.values
            lengths[0] = self.bias.ids.shape[1]
        if self.penalties is not None:
            p = self.penalties
            planes[2:8] = p.presence, p.frequency, p.repetition, p.counts, p.rows, p.earlier
            lengths[1] = p.earlier.shape[1]
        if self.allowed is not None:
            planes[8:] = self.allowed.masks, self.allowed.rows
            lengths[2] = self.allowed.masks.shape[1]
        dense = (None if plane is None else plane.contiguous() for plane in planes)
        return (*dense, *lengths)


@dataclass(slots=True)
class _Memory:
    """What one launch leaves for the next; bins are cleared by the first."""

    rows: int
    blocks: int
    device: torch.device
    tops: Tensor = field(init=False)
    settings: Tensor = field(init=False)
    bins: tuple[Tensor, Tensor] = field(init=False)  # counts and weights
    before: tuple[Tensor, Tensor] = field(init=False)  # the same of all better bins
    found: Tensor = field(init=False)
    ranges: Tensor = field(init=False)  # of bins that decide
    few: tuple[Tensor, Tensor, Tensor] = field(init=False)  # values, ids and weights
    ranked: tuple[Tensor, Tensor] = field(init=False)  # places and running weights

    def __post_init__(self) -> None:
        bins = BINS.value
        self.tops = self.space(self.blocks, torch.float32)
        self.settings = self.space(SETTINGS.value, torch.float64)
        copied = bins * COPIES.value
        self.bins = self.space(copied, torch.int32), self.space(copied, torch.int64)
        self.before = self.space(bins, torch.int32), self.space(bins, torch.int64)
        self.found, self.ranges = self.space(2, torch.int32), self.space(8, torch.int32)
        values, ids = self.space(ROOM, torch.float32), self.space(ROOM, torch.int32)
        self.few = values, ids, self.space(ROOM, torch.int64)
        self.ranked = self.space(ROOM, torch.int32), self.space(ROOM, torch.int64)

    def space(self, width: int, dtype: torch.dtype) -> Tensor:
        """Memory for each row."""
        return torch.empty((self.rows, width), dtype=dtype, device=self.device)


def drawn(
    op: str, logits: Tensor, limit: int, settings: Settings, rules: Rules | None = None
) -> Tensor:
    """The token of each row of logits [R, V], -1 where none can be used; -> [R] int64.

    Raises UnsupportedError for more ids than whole weights can be added up of.
    """
    if limit > _MOST_IDS:
        raise UnsupportedError(
            f"{op}: no Triton kernel for {limit} ids; at most {_MOST_IDS}, or backend 'reference'"
        )
    rows = logits.shape[0]
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if rows:
        memory = _Memory(rows, -(-limit // BLOCK), logits.device)
        x = _prepared(logits, limit, settings, rules or Rules(), memory)
        _decided(x, limit, memory, out)
    return out


def _prepared(
    logits: Tensor, limit: int, settings: Settings, rules: Rules, memory: _Memory
) -> Tensor:
    """The first launch; gives the logits after the rules."""
    is_ruled = any(rules.switches.values())
    x = memory.space(limit, torch.float32) if is_ruled else logits
    launch(
        prepare.prepare,
        (memory.blocks, memory.rows),
        *(logits, logits.stride(0), limit, *settings.values, *rules.values, logits.shape[1], x),
        *(memory.tops, memory.settings, *memory.bins, memory.found),
        BLOCK=BLOCK,
        IS_SEEDED=settings.seeds is not None,
        **rules.switches,
        **EXACT,
        num_warps=8,
    )
    return x


def _decided(x: Tensor, limit: int, memory: _Memory, out: Tensor) -> None:
    """The other four."""
    m = memory
    grid = (m.blocks, m.rows)
    sizes: dict[str, Any] = {"BLOCKS": triton.next_power_of_2(m.blocks), **EXACT}
    of_row = (x, x.stride(0), limit, m.tops)
    values: tuple[Any, ...] = (*of_row, m.settings, *m.bins, *m.before, m.ranges, m.found)
    launch(narrow.count_bins, grid, *values, BLOCK=BLOCK, **sizes, num_warps=8)
    sizes["ROOM"] = ROOM
    values = (*of_row, m.settings, m.ranges, m.found, *m.few)
    launch(narrow.gather, grid, *values, BLOCK=BLOCK, **sizes, num_warps=8)
    least, most, together = _RANKERS
    grid = (min(max(together // m.rows, least), most), m.rows)
    values = (m.tops, m.blocks, m.settings, *m.before, m.found, *m.few, *m.ranked)
    launch(decide.rank, grid, *values, **sizes, **_RANKED)
    values = (*of_row, m.blocks, m.settings, m.bins[1], m.found, *m.few[1:], *m.ranked, out)
    launch(decide.decide, (m.rows,), *values, BLOCK=BLOCK, CHUNK=_CHUNK, **sizes, num_warps=8)
