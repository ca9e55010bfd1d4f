"""Drafts by the block drafters DFlash and DFlash2: one pass over an anchor and its masks."""

from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import Final

import torch
from torch import Tensor

from ninfer.models.forward_batch import ForwardBatch
from ninfer.models.qwen3_6 import (
    ContextRows,
    DraftBlock,
    ProposalHead,
    block_forward,
    draft_block,
    extend_context,
    greedy_drafts,
    select_drafts,
)
from ninfer.models.qwen3_6.block_weights import BlockDrafterConfig, BlockDrafterWeights
from ninfer.models.qwen3_6.dflash2 import SelectorWeights
from ninfer.ops.tensors import HostTable, PagedKV, Weight
from ninfer.runtime.sequence import Sequence
from ninfer.runtime.speculative.kept_rows import kept_rows
from ninfer.runtime.speculative.proposer import TargetRows, until_unknown

# Drafts [M] of the masks, from hidden states [M, hidden], their block, and the block's sequences.
Choice = Callable[[Tensor, DraftBlock, Items[Sequence]], Tensor]

# The same from temperatures [B] and numbers u [M], in float64 on the device.
TemperedChoice = Callable[[Tensor, DraftBlock, Tensor, Tensor], Tensor]

# The number with which the target will draw the token so many places behind the newest one.
Uniforms = Callable[[Sequence, int], float]


def best_tokens(head: ProposalHead) -> Choice:
    """The choice of DFlash: the best token of each mask."""

    def choose(hidden: Tensor, block: DraftBlock, sequences: Items[Sequence]) -> Tensor:
        return greedy_drafts(head, hidden)

    return choose


def walk(selector: SelectorWeights, head: ProposalHead, top_k: int, uniforms: Uniforms) -> Choice:
    """The choice of DFlash2 as `tempered` has it, with the numbers of sequences on the host.

    A draft counts when the target draws the same token. So the walk draws with the number that the
    target will use at that place: where both distributions agree, so do the draws.
    """

    def choose(hidden: Tensor, block: DraftBlock, sequences: Items[Sequence]) -> Tensor:
        heat = [s.sampling.temperature for s in sequences]
        u = [
            uniforms(s, ahead)
            for s, count in zip(sequences, block.counts, strict=True)
            for ahead in range(count)
        ]
        return choose_by(
            hidden,
            block,
            torch.tensor(heat, dtype=torch.float64, device=hidden.device),
            torch.tensor(u, dtype=torch.float64, device=hidden.device),
        )

    choose_by = tempered(selector, head, top_k)
    return choose


def tempered(selector: SelectorWeights, head: ProposalHead, top_k: int) -> TemperedChoice:
    """The choice of DFlash2: a walk over pairs of candidates, at each sequence's temperature."""

    def choose(hidden: Tensor, block: DraftBlock, temperature: Tensor, u: Tensor) -> Tensor:
        return select_drafts(
            selector, head, hidden, block, top_k=top_k, temperature=temperature, u=u
        ).tokens

    return choose


def untempered(head: ProposalHead) -> TemperedChoice:
    """The choice of DFlash, which is the same at any temperature."""
    return lambda hidden, block, temperature, u: greedy_drafts(head, hidden)


class BlockProposer:
    """Keeps a drafter's context up to the frontier and drafts a block behind it.

    Context rows are written for committed positions only and do not see each other, so a block
    depends on the committed tokens and on nothing that was tried before. It keeps no other state.
    """

    def __init__(
        self,
        weights: BlockDrafterWeights,
        config: BlockDrafterConfig,
        embedding: Weight | HostTable,
        caches: Items[PagedKV],
        choose: Choice,
        *,
        dtype: torch.dtype,
        tempered: TemperedChoice | None = None,
    ) -> None:
        """`tempered` is the same choice for device-side rounds; without it there are none."""
        self.tempered: Final = tempered
        self.mask_id: Final = config.mask_id
        self.taps: Final = config.target_layers
        self.kv_layers: Final = {f"block.{index}": kv for index, kv in enumerate(caches)}
        self._weights = weights
        self._config = config
        self._embedding = embedding
        self._caches = caches
        self._choose = choose
        self._dtype = dtype

    @torch.inference_mode()
    def observe(
        self, rows: Items[TargetRows], batch: ForwardBatch, hidden: Tensor, taps: Items[Tensor]
    ) -> None:
        """Add the kept rows to the context; see Proposer."""
        rows = [r for r in rows if r.kept]
        if not rows:
            return
        kept, places = kept_rows(rows, batch)
        # Drafters rotate by the plain index, also behind media.
        positions = torch.cat([torch.arange(r.start, r.start + r.kept) for r in rows])
        context = ContextRows(positions.to(places.device), kept.kv_slots)
        self.extend([tap[places] for tap in taps], context)

    def extend(self, taps: Items[Tensor], context: ContextRows) -> None:
        """Write context rows from their taps, [rows, hidden] each."""
        extend_context(self._weights, self._config, taps, context, self._caches)

    def hidden(self, block: DraftBlock) -> Tensor:
        """Final hidden states [M, hidden] of a block's masks."""
        return block_forward(
            self._weights, self._config, self._embedding, block, self._caches, dtype=self._dtype
        )

    @torch.inference_mode()
    def propose(self, sequences: Items[Sequence], counts: Items[int]) -> list[list[int]]:
        """Drafts of all sequences from one block; see Proposer."""
        drafts: list[list[int]] = [[] for _ in sequences]
        live = [i for i, count in enumerate(counts) if count > 0]
        if not live:
            return drafts
        chosen = [sequences[i] for i in live]
        block = self._block(chosen, [counts[i] for i in live])
        tokens = iter(self._choose(self.hidden(block), block, chosen).tolist())
        for i, count in zip(live, block.counts, strict=True):
            drafts[i] = until_unknown([next(tokens) for _ in range(count)])
        return drafts

    def source(self, sequence: Sequence) -> str:
        """Always "block"."""
        return "block"

    def release(self, sequence: Sequence) -> None:
        """Nothing is kept besides the sequence's own pages."""

    def _block(self, sequences: Items[Sequence], counts: Items[int]) -> DraftBlock:
        device = self._caches[0].keys.device
        width = max(len(s.pages) for s in sequences)
        table = [s.pages + [0] * (width - len(s.pages)) for s in sequences]
        anchors = torch.tensor([s.tokens[-1] for s in sequences], device=device)
        frontiers = [len(s.tokens) - 1 for s in sequences]
        assert all(s.cached == f for s, f in zip(sequences, frontiers, strict=True))
        page_table = torch.tensor(table, device=device)
        return draft_block(anchors, frontiers, counts, page_table, self._config.mask_id)
