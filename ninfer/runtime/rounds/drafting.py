"""Drafts inside a round: by the MTP layer or a block drafter, with nothing left to the host."""

from collections.abc import Sequence as Items
from dataclasses import dataclass, replace
from typing import Final, Protocol

import torch
from torch import Tensor

from ninfer import ops
from ninfer.models.forward_batch import ForwardBatch
from ninfer.models.qwen3_6 import ContextRows, even_block, greedy_drafts
from ninfer.ops.tensors import BlockRows, RaggedRows
from ninfer.runtime.config import PAGE_SIZE, RuntimeConfig
from ninfer.runtime.model_runner import Pass
from ninfer.runtime.rounds.lanes import Lanes
from ninfer.runtime.rounds.layout import Layout
from ninfer.runtime.sequence import Sequence
from ninfer.runtime.speculative.block import BlockProposer, TemperedChoice
from ninfer.runtime.speculative.mtp import MtpProposer

# Rows of a sequence that the MTP layer takes in at once, at about the cost of one.
MOST_BEHIND: Final = 16


@dataclass(frozen=True, slots=True)
class Verified:
    """What a round's pass gave."""

    rows: BlockRows
    batch: ForwardBatch
    passed: Pass
    tokens: Tensor  # [T] int64, drawn behind each row; -1 where that could not be
    counts: Tensor  # [B] int64, rows that stand


class RoundDrafter(Protocol):
    """A proposer whose state between rounds lies on the device.

    Rejected rows may leave traces behind the frontier only, where the next round writes first.
    """

    @property
    def source(self) -> str:
        """What its drafts are counted under."""
        ...

    @property
    def taps(self) -> tuple[int, ...]:
        """As of the proposer."""
        ...

    def propose(self, lanes: Lanes, layout: Layout) -> Tensor:
        """Drafts [B, W - 1] int64 behind the anchors, W > 1; -1 where there is none."""
        ...

    def observe(self, lanes: Lanes, layout: Layout, verified: Verified) -> None:
        """Take in all rows of a pass, of which `counts` stand."""
        ...

    @property
    def most_behind(self) -> int:
        """Rounds without drafts whose rows it can take in later, all at once; 0: none."""
        ...

    def defer(self, lanes: Lanes, layout: Layout, verified: Verified) -> None:
        """Keep the rows of a pass of one row each instead of `observe`."""
        ...

    def catch_up(self, lanes: Lanes, rounds: int) -> None:
        """Take in what so many rounds have left for these lanes, and forget the rest.

        Not part of a round.
        """
        ...

    def knows(self, sequence: Sequence) -> bool:
        """Whether the proposer has observed all but the newest token."""
        ...

    def join(self, sequences: Items[Sequence]) -> None:
        """Take over what the proposer knows of sequences that it `knows`."""
        ...

    def leave(self, sequences: Items[Sequence]) -> None:
        """Give it back, at what are now the sequences' newest tokens."""
        ...


class MtpDrafter:
    """The chain of `MtpProposer` in fixed shapes; the layer's last state lies by state slot."""

    source: Final = "mtp"
    taps: tuple[int, ...] = ()
    most_behind: Final = MOST_BEHIND

    def __init__(self, proposer: MtpProposer, runtime: RuntimeConfig, hidden: int) -> None:
        self._proposer = proposer
        size = (runtime.state_slots, hidden)
        self._tails = torch.zeros(size, dtype=runtime.dtype, device=runtime.device)
        later = (runtime.state_slots, MOST_BEHIND)
        self._later = self._tails.new_zeros((*later, hidden))  # states of rows left for later
        self._following = torch.zeros(later, dtype=torch.int64, device=runtime.device)
        self._behind = torch.zeros(1, dtype=torch.int64, device=runtime.device)

    def propose(self, lanes: Lanes, layout: Layout) -> Tensor:
        """See RoundDrafter."""
        head, count = self._proposer.head, lanes.anchors.shape[0]
        hidden = self._tails[lanes.slots]
        drafts = [greedy_drafts(head, hidden)]
        none = lanes.anchors.new_empty((count, 0))
        for ahead in range(layout.shape.width - 2):
            places = lanes.frontiers + ahead
            rows = ops.block_rows(drafts[-1], none, places, lanes.pages, PAGE_SIZE)
            batch = forward_batch(lanes, rows, layout.single, 1)
            hidden = self._proposer.forward(batch, hidden)
            drafts.append(greedy_drafts(head, hidden))
        return torch.stack(drafts, dim=1)

    def observe(self, lanes: Lanes, layout: Layout, verified: Verified) -> None:
        """See RoundDrafter."""
        # Behind a row that stands comes the token drawn there, right draft or newest.
        shifted = replace(verified.batch, tokens=verified.tokens.clamp_min(0))
        states = self._proposer.forward(shifted, verified.passed.hidden)
        last = layout.offsets[:-1] + verified.counts - 1
        self._tails[lanes.slots] = states[last]

    def defer(self, lanes: Lanes, layout: Layout, verified: Verified) -> None:
        """See RoundDrafter: a round without drafts then costs what it costs without a drafter."""
        place = self._behind.expand(lanes.slots.shape)
        self._later[lanes.slots, place] = verified.passed.hidden
        self._following[lanes.slots, place] = verified.tokens
        self._behind += 1

    def catch_up(self, lanes: Lanes, rounds: int) -> None:
        """See RoundDrafter."""
        self._behind.zero_()
        count = lanes.slots.shape[0]
        if not count or not rounds:
            return
        tokens = self._following[lanes.slots, :rounds]
        first = lanes.frontiers - rounds
        rows = ops.block_rows(tokens[:, 0], tokens[:, 1:], first, lanes.pages, PAGE_SIZE)
        offsets = torch.arange(count + 1, device=tokens.device) * rounds
        batch = forward_batch(lanes, rows, offsets, rounds)
        hidden = self._later[lanes.slots, :rounds].flatten(0, 1)
        states = self._proposer.forward(batch, hidden)
        self._tails[lanes.slots] = states.view(count, rounds, -1)[:, -1]

    def knows(self, sequence: Sequence) -> bool:
        """See RoundDrafter."""
        return self._proposer.tail(sequence) is not None

    def join(self, sequences: Items[Sequence]) -> None:
        """See RoundDrafter."""
        for sequence in sequences:
            tail = self._proposer.tail(sequence)
            assert tail is not None
            self._tails[sequence.state_slot] = tail.hidden

    def leave(self, sequences: Items[Sequence]) -> None:
        """See RoundDrafter."""
        for sequence in sequences:
            self._proposer.adopt(sequence, self._tails[sequence.state_slot].clone())


class BlockDrafter:
    """The block of `BlockProposer` in fixed shapes; its context lies in the sequences' pages."""

    source: Final = "block"
    most_behind: Final = 0

    def __init__(self, proposer: BlockProposer, choose: TemperedChoice) -> None:
        self.taps: Final = proposer.taps
        self._proposer = proposer
        self._choose = choose

    def propose(self, lanes: Lanes, layout: Layout) -> Tensor:
        """See RoundDrafter."""
        count, drafts = layout.shape.count, layout.shape.width - 1
        masks = lanes.anchors.new_full((count, drafts), self._proposer.mask_id)
        rows = ops.block_rows(lanes.anchors, masks, lanes.frontiers, lanes.pages, PAGE_SIZE)
        spans = RaggedRows(
            layout.offsets, rows.kv_lengths, lanes.pages, lanes.slots, longest=drafts + 1
        )
        anchors = lanes.anchors.clamp_min(0)
        block = even_block(rows, spans, anchors, layout.drafts, drafts)
        # Draft i is the token at the position of row i + 1, drawn with the number of row i.
        places = lanes.frontiers.unsqueeze(1) + layout.places[:-1]
        seeds = lanes.whole[1].unsqueeze(1).expand(-1, drafts)
        purposes = layout.purposes[: count * drafts]
        u = ops.uniforms(seeds.reshape(-1), places.reshape(-1), purposes).to(torch.float64)
        tokens = self._choose(self._proposer.hidden(block), block, lanes.wide[0], u)
        return tokens.view(count, drafts)

    def observe(self, lanes: Lanes, layout: Layout, verified: Verified) -> None:
        """See RoundDrafter."""
        rows = verified.rows
        self._proposer.extend(verified.passed.taps, ContextRows(rows.positions, rows.kv_slots))

    def defer(self, lanes: Lanes, layout: Layout, verified: Verified) -> None:
        """See RoundDrafter; it is never asked to."""
        raise AssertionError(self.source)

    def catch_up(self, lanes: Lanes, rounds: int) -> None:
        """See RoundDrafter; there is never anything."""
        raise AssertionError(self.source)

    def knows(self, sequence: Sequence) -> bool:
        """See RoundDrafter; the context is in its pages."""
        return True

    def join(self, sequences: Items[Sequence]) -> None:
        """See RoundDrafter."""

    def leave(self, sequences: Items[Sequence]) -> None:
        """See RoundDrafter."""


def forward_batch(
    lanes: Lanes,
    rows: BlockRows,
    offsets: Tensor,
    width: int,
    *,
    held: Tensor | None = None,
    logit_rows: Tensor | None = None,
) -> ForwardBatch:
    """The forward batch of blocks of `width` rows, one behind each lane's frontier."""
    shifted = rows.positions.view(-1, width) + lanes.shifts.unsqueeze(1)
    return ForwardBatch(
        tokens=rows.tokens,
        positions=shifted.view(1, -1).expand(3, -1),
        rows=RaggedRows(
            offsets=offsets,
            kv_lengths=rows.kv_lengths,
            page_table=lanes.pages,
            state_slots=lanes.slots,
            held=held,
            longest=width,
        ),
        kv_slots=rows.kv_slots,
        logit_rows=rows.tokens.new_empty(0) if logit_rows is None else logit_rows,
    )
