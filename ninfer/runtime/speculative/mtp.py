"""Drafts by the MTP layer: the first from the target's own state, the others chained on it."""

from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from ninfer.models.config import TextConfig
from ninfer.models.forward_batch import ForwardBatch, MediaRows
from ninfer.models.qwen3_6 import (
    ProposalHead,
    TextWeights,
    greedy_drafts,
    mtp_forward,
    shifted_batch,
)
from ninfer.models.qwen3_6.mtp import MtpWeights
from ninfer.ops.tensors import PagedKV, RaggedRows
from ninfer.runtime.config import PAGE_SIZE
from ninfer.runtime.media import positions_of, rows_of
from ninfer.runtime.sequence import Sequence
from ninfer.runtime.speculative.kept_rows import kept_rows
from ninfer.runtime.speculative.proposer import TargetRows, until_unknown


@dataclass(frozen=True, slots=True)
class Tail:
    """The layer's state at the last committed row, from which the next round starts."""

    frontier: int
    following: int  # the token that the row has consumed
    hidden: Tensor  # [hidden]


class MtpProposer:
    """Runs the MTP layer over every committed row, then row by row over its own drafts.

    The rows of the chain are written behind the frontier and overwritten, before anyone reads them,
    by the same positions with the target's states. The cache's last row before a shared prefix ends
    has consumed the token that followed there first; that can cost a draft, never change a token.
    """

    taps: tuple[int, ...] = ()

    def __init__(
        self,
        weights: MtpWeights,
        target: TextWeights,
        text: TextConfig,
        head: ProposalHead,
        cache: PagedKV,
    ) -> None:
        self._weights = weights
        self._target = target
        self._text = text
        self.head: Final = head
        self._cache = cache
        self.kv_layers: Final = {"mtp": cache}
        self._tails: dict[Sequence, Tail] = {}

    @torch.inference_mode()
    def observe(
        self, rows: Items[TargetRows], batch: ForwardBatch, hidden: Tensor, taps: Items[Tensor]
    ) -> None:
        """Take in the kept rows; see Proposer."""
        rows = [r for r in rows if r.kept]
        if not rows:
            return
        kept, places = kept_rows(rows, batch)
        following = torch.tensor([r.following for r in rows], device=batch.tokens.device)
        shifted = shifted_batch(kept, following, _following_media(rows, following.device))
        states = self.forward(shifted, hidden[places])[kept.rows.offsets[1:] - 1]
        for r, state in zip(rows, states, strict=True):
            self._tails[r.sequence] = Tail(r.start + r.kept, r.following, state)

    @torch.inference_mode()
    def propose(self, sequences: Items[Sequence], counts: Items[int]) -> list[list[int]]:
        """Greedy drafts; none for a sequence whose newest token was not observed."""
        drafts: list[list[int]] = [[] for _ in sequences]
        # The longest chains first, so that those still running are always in front.
        live = [i for i, s in enumerate(sequences) if counts[i] > 0 and self.tail(s)]
        live.sort(key=lambda i: -counts[i])
        if live:
            chains = self._chains([sequences[i] for i in live], [counts[i] for i in live])
            for i, chain in zip(live, chains, strict=True):
                drafts[i] = until_unknown(chain)
        return drafts

    def source(self, sequence: Sequence) -> str:
        """Always "mtp"."""
        return "mtp"

    def release(self, sequence: Sequence) -> None:
        """Forget a sequence, known or not."""
        self._tails.pop(sequence, None)

    def forward(self, batch: ForwardBatch, hidden: Tensor) -> Tensor:
        """The layer over a shifted batch; see `mtp_forward`."""
        return mtp_forward(self._weights, self._target, self._text, batch, hidden, self._cache)

    def adopt(self, sequence: Sequence, hidden: Tensor) -> None:
        """Take `hidden` [hidden] for the state at the row before the sequence's newest token."""
        self._tails[sequence] = Tail(len(sequence.tokens) - 1, sequence.tokens[-1], hidden)

    def tail(self, sequence: Sequence) -> Tail | None:
        """The state at the row before the sequence's newest token, if that was observed."""
        tail = self._tails.get(sequence)
        if tail is None or tail.frontier != len(sequence.tokens) - 1:
            return None
        return tail if tail.following == sequence.tokens[-1] else None

    def _chains(self, sequences: Items[Sequence], counts: Items[int]) -> list[list[int]]:
        """Drafts of each sequence; `counts` descend, all at least 1. One wait for the device."""
        tails = [self._tails[s] for s in sequences]
        hidden = torch.stack([tail.hidden for tail in tails])
        steps = [greedy_drafts(self.head, hidden)]
        for step in range(1, counts[0]):
            live = sum(count > step for count in counts)
            # An unknown draft is not reported; what follows it only has to be a legal id.
            batch = _chained(sequences[:live], step - 1, steps[-1][:live].clamp(min=0))
            hidden = self.forward(batch, hidden[:live])
            steps.append(greedy_drafts(self.head, hidden))
        flat = iter(torch.cat(steps).tolist())
        chains: list[list[int]] = [[] for _ in sequences]
        for tokens in steps:
            for chain in chains[: tokens.shape[0]]:
                chain.append(next(flat))
        return chains


def _chained(sequences: Items[Sequence], ahead: int, tokens: Tensor) -> ForwardBatch:
    """One row each, `ahead` positions behind the frontier, consuming the draft behind it."""
    device = tokens.device
    at = [len(s.tokens) - 1 + ahead for s in sequences]
    width = max(len(s.pages) for s in sequences)
    slots = [
        s.pages[p // PAGE_SIZE] * PAGE_SIZE + p % PAGE_SIZE
        for s, p in zip(sequences, at, strict=True)
    ]
    axes = [positions_of(s.media, p, 1) for s, p in zip(sequences, at, strict=True)]
    table = [s.pages + [0] * (width - len(s.pages)) for s in sequences]
    return ForwardBatch(
        tokens=tokens,
        positions=torch.cat(axes, dim=1).to(device),
        rows=RaggedRows(
            offsets=torch.arange(len(at) + 1, device=device),
            kv_lengths=torch.tensor([p + 1 for p in at], device=device),
            page_table=torch.tensor(table, device=device),
            state_slots=torch.arange(len(at), device=device),
        ),
        kv_slots=torch.tensor(slots, device=device),
        logit_rows=torch.empty(0, dtype=torch.int64, device=device),
    )


def _following_media(rows: Items[TargetRows], device: torch.device) -> MediaRows | None:
    """Embeddings for sequences that were cut in front of a placeholder of media."""
    places: list[int] = []
    embeddings: list[Tensor] = []
    stop = 0
    for r in rows:
        stop += r.kept
        if r.sequence.media is not None:
            _, found = rows_of(r.sequence.media, r.start + r.kept, 1)
            if found.shape[0]:
                places.append(stop - 1)
                embeddings.append(found)
    if not places:
        return None
    return MediaRows(torch.tensor(places, device=device), torch.cat(embeddings))
