"""Contract of a round of drafts on the device: which ones stand, and the rows of the next block."""

from typing import Final

from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.dispatch import Route
from ninfer.ops.drafts import reference
from ninfer.ops.tensors import BlockRows

_ACCEPT_DRAFTS: Final = Route(reference.accept_drafts)
_BLOCK_ROWS: Final = Route(reference.block_rows)


def accept_drafts(tokens: Tensor, drafts: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """(counts, newest): how many tokens of each sequence stand, and the last of them.

    tokens[t] is what the model draws behind row t; drafts[t] is what was fed as the row after it,
    and of a sequence's last row it means nothing. A sequence keeps its tokens up to the first that
    its draft did not foresee, that one included. A token of -1, of a row that could not be used,
    is never foreseen unless the draft is -1 too, and ends the sequence as its newest.
    Sequence b owns rows offsets[b]:offsets[b + 1]; one without rows gives 0 and -1.
    Shapes: tokens and drafts [T] int64, offsets [B + 1] int64 -> two [B] int64.
    Raises ValueError for shapes or types that disagree.
    """
    op = "accept_drafts"
    checks.indices(op, "tokens", tokens, tokens.shape[:1], tokens)
    checks.indices(op, "drafts", drafts, tokens.shape, tokens)
    if offsets.ndim != 1 or not offsets.shape[0]:
        raise checks.wrong(op, "offsets", f"of shape {tuple(offsets.shape)}", "of B + 1 entries")
    checks.indices(op, "offsets", offsets, offsets.shape, tokens)
    return _ACCEPT_DRAFTS.run(tokens, drafts, offsets)


def block_rows(
    anchors: Tensor, drafts: Tensor, frontiers: Tensor, page_table: Tensor, page_size: int
) -> BlockRows:
    """The rows of a block behind each anchor: the anchor at its frontier, then its drafts.

    Row i of a block stands at position frontiers[b] + i. Ids below 0, of rows that no one will
    count, become 0, so that every id is legal. Domain: page_table reaches as far as the block.
    Shapes: anchors [B], drafts [B, W - 1], frontiers [B], page_table [B, P], all int64.
    Raises ValueError for shapes or types that disagree and a page size below 1.
    """
    op = "block_rows"
    checks.indices(op, "anchors", anchors, anchors.shape[:1], anchors)
    count = anchors.shape[0]
    checks.indices(op, "drafts", drafts, (count, drafts.shape[-1]), anchors)
    checks.indices(op, "frontiers", frontiers, (count,), anchors)
    checks.indices(op, "page_table", page_table, (count, page_table.shape[-1]), anchors)
    if page_size < 1:
        raise checks.wrong(op, "page_size", page_size, "at least 1")
    return _BLOCK_ROWS.run(anchors, drafts, frontiers, page_table, page_size)
