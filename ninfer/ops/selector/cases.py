"""Input cases of choosing drafts."""

from functools import partial
from typing import Final

import torch

from ninfer.ops.case import Call, Case, Inputs
from ninfer.ops.selector import edge_scores, indexed_argmax, indexed_top, tempered_softmax


def _indexed(rows: int, columns: int, known: int, inputs: Inputs) -> Call:
    """Rounded logits, so that ties are common, over ids in no order."""
    logits = inputs.normal(rows, columns, scale=2.0).round()
    return Call({"logits": logits, "ids": inputs.shuffled(columns + 50)[:known]})


def _top(rows: int, columns: int, known: int, count: int, inputs: Inputs) -> Call:
    call = _indexed(rows, columns, known, inputs)
    return Call({**call.arguments, "count": count})


def _unusable(inputs: Inputs) -> Call:
    """Rows with NaN, +inf, and nothing but -inf, then two good ones that end in columns of NaN."""
    logits = inputs.normal(5, 40)
    logits[0, 7], logits[1, 0], logits[2] = torch.nan, torch.inf, -torch.inf
    logits[3:, 30:] = torch.nan
    return Call({"logits": logits, "ids": inputs.shuffled(30)})


def _top_unusable(inputs: Inputs) -> Call:
    return Call({**_unusable(inputs).arguments, "count": 4})


def _edges(rows: int, candidates: int, rank: int, inputs: Inputs) -> Call:
    arguments = {
        "logits": inputs.normal(rows, candidates, scale=3.0),
        "ids": inputs.integers(0, 90, rows, candidates),
        "previous": inputs.integers(0, 90, rows),
        "gate": inputs.normal(rows, rank),
        "predecessors": inputs.normal(90, rank, scale=0.3),
        "successors": inputs.normal(90, rank, scale=0.3),
    }
    return Call(arguments)


def _softmax(rows: int, candidates: int, inputs: Inputs) -> Call:
    heat = torch.tensor([0.0, 1.0, 0.7, 1.5, -1.0, 1e-6], device=inputs.device)
    scores = inputs.normal(rows, candidates, scale=4.0)
    return Call({"scores": scores, "temperature": heat[:rows]})


CASES: Final = (
    *(
        Case(indexed_argmax, name, partial(_indexed, *sizes))
        for name, sizes in (("ties", (6, 80, 70)), ("one_id", (2, 5, 1)), ("no_rows", (0, 9, 9)))
    ),
    Case(indexed_argmax, "unusable_rows", _unusable),
    Case(indexed_top, "ties", partial(_top, 6, 200, 180, 16)),
    Case(indexed_top, "unusable_rows", _top_unusable),
    Case(indexed_top, "all", partial(_top, 3, 12, 12, 12)),
    Case(indexed_top, "no_rows", partial(_top, 0, 20, 18, 16)),
    Case(edge_scores, "rank_256", partial(_edges, 7, 16, 256)),
    Case(edge_scores, "one_candidate", partial(_edges, 2, 1, 3)),
    Case(edge_scores, "no_rows", partial(_edges, 0, 16, 8)),
    Case(tempered_softmax, "temperatures", partial(_softmax, 6, 16)),
    Case(tempered_softmax, "no_rows", partial(_softmax, 0, 16)),
)
