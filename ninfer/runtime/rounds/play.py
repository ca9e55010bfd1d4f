"""One decode round on the device: draft, verify, draw, accept, commit, observe, report."""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer import ops
from ninfer.models.forward_batch import ForwardBatch
from ninfer.ops.tensors import BlockRows, DrawSettings, TokenPenalties
from ninfer.runtime.config import PAGE_SIZE
from ninfer.runtime.model_runner import Pass
from ninfer.runtime.rounds.drafting import RoundDrafter, Verified, forward_batch
from ninfer.runtime.rounds.lanes import Lanes, LaneTable
from ninfer.runtime.rounds.layout import Layout

Accept = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class RoundModel:
    """What a round works with; all of it stays where it is while the engine lives.

    `accept` has the contract of `ops.accept_drafts`; a benchmark puts another in its place.
    """

    run: Callable[[ForwardBatch, Items[int]], Pass]
    table: LaneTable
    pending: Tensor  # [S] int64, of the caches
    addressable: int
    drafter: RoundDrafter | None = None
    accept: Accept = ops.accept_drafts


@torch.inference_mode()
def play(model: RoundModel, layout: Layout, out: Tensor) -> None:
    """Run a round of the first lanes; nothing in it waits for the device or depends on the host.

    Verifies the drafts of each lane and keeps its tokens up to the first that its draft did not
    foresee. Afterwards anchor, frontier, `pending`, counts and the drafter's state are those of the
    next round. `out` [B, 2 W] int64 takes the number of tokens that stand, the W tokens drawn, of
    which -1 could not be, and the W - 1 drafts that were fed.
    """
    shape = layout.shape
    lanes = model.table.first(shape.count)
    drafts = _drafts(model, lanes, layout)
    rows = ops.block_rows(lanes.anchors, drafts, lanes.frontiers, lanes.pages, PAGE_SIZE)
    batch = forward_batch(
        lanes, rows, layout.offsets, shape.width, held=layout.held, logit_rows=layout.rows
    )
    passed = model.run(batch, model.drafter.taps if model.drafter else ())
    fed = rows.tokens.view(shape.count, shape.width)[:, 1:]  # [B, W - 1]
    tokens = _tokens(model, lanes, layout, rows, fed, passed.logits)
    foreseen = torch.cat((fed, layout.nothing), dim=1).flatten()
    counts, newest = model.accept(tokens, foreseen, layout.offsets)
    if model.drafter is not None:
        take = model.drafter.observe if shape.observes else model.drafter.defer
        take(lanes, layout, Verified(rows, batch, passed, tokens, counts))
    _commit(model, lanes, layout, tokens, counts, newest)
    drawn = tokens.view(shape.count, shape.width)
    torch.cat((counts.unsqueeze(1), drawn, fed), dim=1, out=out)


def _drafts(model: RoundModel, lanes: Lanes, layout: Layout) -> Tensor:
    """Drafts [B, W - 1] of the host where it has given some, else of the drafter."""
    shape = layout.shape
    if shape.width == 1:
        return lanes.anchors.new_empty((shape.count, 0))
    given = lanes.given[:, : shape.width - 1]
    if model.drafter is None:
        return given.contiguous()
    proposed = model.drafter.propose(lanes, layout)
    return given.where(given > -2, proposed) if shape.given else proposed


def _tokens(
    model: RoundModel, lanes: Lanes, layout: Layout, rows: BlockRows, fed: Tensor, logits: Tensor
) -> Tensor:
    """The token [T] behind each row, by its lane's settings and the drafts in front of it."""
    top_k, seeds, counted = _by_row(lanes.whole, layout)
    temperature, top_p, min_p = _by_row(lanes.wide, layout)
    presence, frequency, repetition = _by_row(lanes.narrow, layout)
    draws = DrawSettings(temperature, top_k, top_p, min_p, seeds, rows.positions, layout.purposes)
    penalties = TokenPenalties(
        model.table.counts, counted, _earlier(fed, layout), presence, frequency, repetition
    )
    return ops.next_tokens(logits, draws, limit=model.addressable, penalties=penalties)


def _by_row(settings: Tensor, layout: Layout) -> Iterator[Tensor]:
    """Settings [3, B] of the lanes as three of the rows [T]."""
    if layout.shape.width == 1:
        return iter(settings.unbind())
    return iter(settings.index_select(1, layout.lanes)[:, : layout.shape.rows].unbind())


def _earlier(fed: Tensor, layout: Layout) -> Tensor:
    """Drafts [T, E] in front of each row of its block; -1 is none."""
    width = layout.shape.width
    if width == 1:
        return layout.nothing
    every = fed.unsqueeze(1).expand(-1, width, -1)  # [B, W, W - 1]
    return every.where(layout.ahead, -1).flatten(0, 1)


def _commit(
    model: RoundModel, lanes: Lanes, layout: Layout, tokens: Tensor, counts: Tensor, newest: Tensor
) -> None:
    """Move every lane behind the tokens that stand."""
    stands = layout.places < counts.unsqueeze(1)  # [B, W]
    width = model.table.counts.shape[1]
    places = lanes.slots.unsqueeze(1) * width + tokens.view(stands.shape).clamp_min(0)
    counted = model.table.counts.view(-1)
    counted.scatter_add_(0, places.flatten(), stands.flatten().to(counted.dtype))
    # Rows that were not held are in the state already.
    model.pending[lanes.slots] = counts if layout.held is not None else counts - 1
    lanes.anchors.copy_(newest)
    lanes.frontiers.add_(counts)
