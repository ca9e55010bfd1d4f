"""Input cases of a round of drafts."""

from functools import partial
from typing import Final

import torch

from ninfer.ops.case import Call, Case, Inputs
from ninfer.ops.drafts import accept_drafts, block_rows


def _accept(new: tuple[int, ...], right: tuple[int, ...], inputs: Inputs) -> Call:
    """Sequences of `new` rows whose first `right` drafts are right; the next one is not."""
    tokens = inputs.integers(0, 1000, sum(new))
    drafts, start = tokens.clone(), 0
    for rows, count in zip(new, right, strict=True):
        if count < rows:
            drafts[start + count] += 1
        start += rows
    offsets = torch.tensor([0, *new], device=inputs.device).cumsum(0)
    return Call({"tokens": tokens, "drafts": drafts, "offsets": offsets})


def _unusable(inputs: Inputs) -> Call:
    """A token of -1 in front, behind right drafts, and behind a wrong one."""
    call = _accept((4, 4, 4), (3, 3, 1), inputs)
    call.arguments["tokens"][[0, 6, 10]] = -1
    return call


def _block(count: int, drafts: int, inputs: Inputs) -> Call:
    frontiers = inputs.integers(0, 250, count)
    found = inputs.integers(-1, 1000, count, drafts)
    arguments = {
        "anchors": inputs.integers(0, 1000, count),
        "drafts": found,
        "frontiers": frontiers,
        "page_table": inputs.shuffled(count * 5).view(count, 5),
        "page_size": 64,
    }
    return Call(arguments)


CASES: Final = (
    Case(accept_drafts, "all_right", partial(_accept, (4, 1, 16), (3, 0, 15))),
    Case(accept_drafts, "some", partial(_accept, (4, 0, 1, 16, 70, 130), (1, 0, 0, 9, 0, 100))),
    Case(accept_drafts, "unusable", _unusable),
    Case(accept_drafts, "no_sequences", partial(_accept, (), ())),
    Case(block_rows, "anchors_alone", partial(_block, 3, 0)),
    Case(block_rows, "drafts", partial(_block, 5, 7)),
    Case(block_rows, "crossing_pages", partial(_block, 2, 63)),
    Case(block_rows, "no_sequences", partial(_block, 0, 3)),
)
