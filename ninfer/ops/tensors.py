"""Views that ops take and give: weights of any stored form, ragged rows, caches, experts."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, Self

import torch
from torch import Tensor

from ninfer.formats import PackedMatrix
from ninfer.formats.registry import kv_format


class ResidentMatrix(Protocol):
    """A packed matrix re-tiled for the kernels of one card; made by `ninfer.ops.resident`."""

    @property
    def format(self) -> str:
        """The numeric format of its codes."""

    @property
    def shape(self) -> tuple[int, int]:
        """Logical size [N, K]."""

    @property
    def device(self) -> torch.device:
        """Where the words lie."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""

    def rows(self, start: int, stop: int) -> Self:
        """Rows start:stop in the same form: a view where its tiles allow, else a copy."""

    def dequantise(self, dtype: torch.dtype = ...) -> Tensor:
        """Values [N, K], each the exact float32 product rounded once to `dtype`."""


# A matrix of logical shape [N, K] as artifacts hold it: N output rows, K input columns.
StoredWeight = Tensor | PackedMatrix
# The same as ops take it.
Weight = StoredWeight | ResidentMatrix


@dataclass(frozen=True, slots=True)
class HostTable:
    """A matrix [N, D] in host memory whose rows are looked up for ids that may lie elsewhere."""

    stored: StoredWeight

    @property
    def shape(self) -> tuple[int, int]:
        """Logical size [N, D]."""
        rows, columns = self.stored.shape
        return rows, columns


@dataclass(frozen=True, slots=True)
class RaggedRows:
    """Which token rows belong to which sequence, and where their caches are.

    T token rows of B sequences lie one after another; sequence b owns rows
    `offsets[b]:offsets[b + 1]`, its last `offsets[b + 1] - offsets[b]` positions. The owner is the
    forward batch; ops only read it.
    """

    offsets: Tensor  # [B + 1] int64, offsets[0] == 0, offsets[B] == T
    kv_lengths: Tensor  # [B] int64, cached tokens per sequence with the new rows included
    page_table: Tensor  # [B, P] int64, page index of each 64-token page of a sequence
    state_slots: Tensor  # [B] int64, state slot of each sequence, all different
    held: Tensor | None = None  # [B] bool, sequences whose rows are not committed; None: no one's
    # At most so many rows has any sequence, if the host knows; picks a route, changes no result.
    longest: int | None = None

    def spans(self) -> list[tuple[int, int]]:
        """Row range (start, stop) of each sequence on the host; waits for the device."""
        bounds: list[int] = self.offsets.tolist()
        return list(pairwise(bounds))


@dataclass(frozen=True, slots=True)
class PagedKV:
    """Key and value pages of one attention layer in one KV number format.

    Token t of a sequence lies in page `page_table[b, t // page_size]`, row `t % page_size`.
    `format` names an entry of `ninfer.formats.kv`. Scales are None for formats without them.
    """

    format: str
    keys: Tensor  # [pages, page_size, heads, words of a head row] of the format
    values: Tensor  # the same
    key_scales: Tensor | None = None  # [pages, page_size, heads, groups]
    value_scales: Tensor | None = None

    @property
    def page_size(self) -> int:
        """Tokens in a page."""
        return self.keys.shape[1]

    @property
    def head_dim(self) -> int:
        """Numbers in a head row."""
        return self.keys.shape[3] * kv_format(self.format).codes


@dataclass(frozen=True, slots=True)
class ConvState:
    """State slots of one convolution: committed inputs, and a window of rows not yet committed.

    A call first commits the first `pending[s]` rows of a slot's window. The rows of a held sequence
    then go to its window, from row 0 on, and the committed inputs stay where they are; all others
    are committed. Ops only read `pending`: the owner sets it to the number of rows that it accepts,
    once for all layers. H = 0 is a state that cannot hold.
    """

    inputs: Tensor  # [S, W - 1, C] last committed inputs, oldest first
    window: Tensor  # [S, H, C] inputs of held rows
    pending: Tensor  # [S] int64 in 0..H


@dataclass(frozen=True, slots=True)
class DeltaState:
    """State slots of one gated delta rule; window and `pending` as in `ConvState`."""

    matrix: Tensor  # [S, Hv, Dv, Dk] float32 or bfloat16, committed
    keys: Tensor  # [S, H, Hk, Dk] of held rows, as are the next three
    values: Tensor  # [S, H, Hv, Dv]
    decays: Tensor  # [S, H, Hv] float32, logarithms
    betas: Tensor  # [S, H, Hv] float32
    pending: Tensor  # [S] int64 in 0..H
    # [S, Hk] int32, zero between calls: how programs of a kernel that share a key head agree on
    # which of them writes. None: a call makes its own.
    arrivals: Tensor | None = None

    @property
    def window(self) -> int:
        """Rows that a slot's window can hold."""
        return self.keys.shape[1]


@dataclass(frozen=True, slots=True)
class DeltaRows:
    """What a Gated DeltaNet reads of each token row: its projections, each with dense last dim."""

    query: Tensor  # [T, Hk, Dk] before the convolution, as are the next two
    key: Tensor  # [T, Hk, Dk]
    value: Tensor  # [T, Hv, Dv]
    gate: Tensor  # [T, Hv, Dv] of the norm
    a: Tensor  # [T, Hv] for the decay
    b: Tensor  # [T, Hv] for the write strength


@dataclass(frozen=True, slots=True)
class DeltaWeights:
    """The small weights of a Gated DeltaNet; channels are those of query, key and value in turn."""

    convolution: Tensor  # [W, C], last tap is the newest input
    a_log: Tensor  # [Hv]
    dt_bias: Tensor  # [Hv]
    norm: Tensor  # [Dv]


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """Routed experts of one MoE layer, flattened expert-major.

    Expert e owns gate_up rows `e * 2I : (e + 1) * 2I` (gate first, then up) and down rows
    `e * D : (e + 1) * D`.
    """

    gate_up: Weight  # [E * 2I, D]
    down: Weight  # [E * D, I]
    count: int  # E


@dataclass(frozen=True, slots=True)
class SharedExpert:
    """The expert that every token passes through, scaled by sigmoid of its score."""

    gate_up: Weight  # [2I, D]
    down: Weight  # [D, I]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Tokens that may be drawn for each row, best first, with weights that need not sum to 1.

    A row with fewer than C candidates is filled up with weight 0, which is never drawn. A row
    whose logits cannot be used holds the single id -1.
    """

    ids: Tensor  # [R, C] int64
    weights: Tensor  # [R, C] float64


@dataclass(frozen=True, slots=True)
class DrawSettings:
    """How the token of each row is drawn, and which random number it takes; all on one device.

    Temperature, top_k, top_p and min_p as in `candidates`; the number is
    `uniform(seed, position, purpose)`.
    """

    temperature: Tensor  # [R] floats
    top_k: Tensor  # [R] integers
    top_p: Tensor  # [R] floats
    min_p: Tensor  # [R] floats
    seeds: Tensor  # [R] int64, the bits of a seed modulo 2^64
    positions: Tensor  # [R] int64
    purposes: Tensor  # [R] int64


@dataclass(frozen=True, slots=True)
class TokenBias:
    """What is added to some logits of each row. Ids of a row are all different; -1 is none."""

    ids: Tensor  # [R, N] int64
    values: Tensor  # [R, N] float32


@dataclass(frozen=True, slots=True)
class TokenPenalties:
    """What has been generated before each row, and its penalties as in `penalise`.

    A row's count of an id is that of its table row, plus one for each time that `earlier` names it:
    the drafts before a row that counts only if all of them are right. A row of -1 has no history
    and no penalties.
    """

    counts: Tensor  # [S, V] int32 >= 0
    rows: Tensor  # [R] int64, row of counts
    earlier: Tensor  # [R, E] int64, -1 is none
    presence: Tensor  # [R] float32
    frequency: Tensor  # [R] float32
    repetition: Tensor  # [R] float32 > 0


@dataclass(frozen=True, slots=True)
class AllowedTokens:
    """Which ids each row may have: masks as in `mask`, and the mask of a row; -1 allows all."""

    masks: Tensor  # [M, W] int32
    rows: Tensor  # [R] int64


@dataclass(frozen=True, slots=True)
class BlockRows:
    """Token rows of blocks of one width: what a pass over them reads."""

    tokens: Tensor  # [B * W] int64
    positions: Tensor  # [B * W] int64
    kv_slots: Tensor  # [B * W] int64, page * page_size + row
    kv_lengths: Tensor  # [B] int64, cached tokens with the block included
