"""Causal depthwise convolution in plain torch."""

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.ops.exact import pointwise
from ninfer.ops.precision import wide
from ninfer.ops.tensors import ConvState, RaggedRows
from ninfer.ops.windows import Span, joined, shifted, spans


def causal_conv_silu(x: Tensor, weight: Tensor, state: ConvState, rows: RaggedRows) -> Tensor:
    """See the contract."""
    here = list(spans("causal_conv_silu", rows, state.pending, state.window.shape[1]))
    if not here:
        return x.new_empty(x.shape)
    history, starts = _histories(here, x, state)
    taps, inputs = weight.to(wide(x)), history.to(wide(x))
    # Where the first tap of each new row lies; all rows of x are some sequence's.
    first = joined(
        [(at + span.kept, span.stop - span.start) for span, at in zip(here, starts, strict=True)],
        x.device,
    )
    total = inputs[first] * taps[0]
    for j in range(1, taps.shape[0]):
        total.addcmul_(inputs[shifted(first, j)], taps[j])
    _commit(here, starts, history, state)
    _hold([span for span in here if span.held], x, state)
    return pointwise(functional.silu, total).to(x.dtype)


def _histories(here: list[Span], x: Tensor, state: ConvState) -> tuple[Tensor, list[int]]:
    """Committed inputs, kept rows and new rows of each sequence, and where each sequence begins."""
    parts: list[Tensor] = []
    starts, length = [], 0
    for span in here:
        kept = state.window[span.slot, : span.kept]
        parts += (state.inputs[span.slot], kept, x[span.start : span.stop])
        starts.append(length)
        length += state.inputs.shape[1] + span.kept + span.stop - span.start
    return torch.cat(parts), starts


def _commit(here: list[Span], starts: list[int], history: Tensor, state: ConvState) -> None:
    past = state.inputs.shape[1]
    last = [
        (at + span.kept + (0 if span.held else span.stop - span.start), past)
        for span, at in zip(here, starts, strict=True)
    ]
    slots = torch.tensor([span.slot for span in here], device=history.device)
    state.inputs[slots] = history[joined(last, history.device)].unflatten(0, (-1, past))


def _hold(here: list[Span], x: Tensor, state: ConvState) -> None:
    """Keep the new rows of held sequences in their windows."""
    if here:
        window = state.window.shape[1]
        source = joined([(span.start, span.stop - span.start) for span in here], x.device)
        target = joined([(span.slot * window, span.stop - span.start) for span in here], x.device)
        state.window.flatten(0, 1)[target] = x[source]
