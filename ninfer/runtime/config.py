"""Resolved sizes of the runtime; computed once from options, never changed afterwards."""

from dataclasses import dataclass
from typing import Final

import torch

# Fixed by the KV layout that every kernel and every stored prefix assumes.
PAGE_SIZE: Final = 64


@dataclass(frozen=True, slots=True)
class RoundOptions:
    """How decode rounds run on the device.

    `ahead` rounds are under way while the host reads an earlier one. With `captures` rounds on a
    card are captured into graphs, which asks that no op waits for the host.
    """

    ahead: int = 0
    captures: bool = False


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """What the runtime allocates and how it cuts work."""

    device: torch.device
    dtype: torch.dtype  # of activations and of the convolution state
    kv_format: str  # entry of ninfer.formats.kv
    max_context: int  # tokens one sequence may hold
    pages: int  # KV pages of PAGE_SIZE tokens
    state_slots: int  # sequences that run at once
    prefill_chunk: int  # prompt tokens of one pass, a multiple of PAGE_SIZE
    state_dtype: torch.dtype = torch.float32  # of the recurrent matrices
    window: int = 1  # rows of a decode piece: the anchor and its drafts
    max_pending: int = 16  # sequences that may wait for a place
    pending_timeout: float | None = None  # seconds from arrival in which one must get a place
    rounds: RoundOptions | None = None  # None: every step runs op by op from the host


def pages_for(tokens: int) -> int:
    """Pages that `tokens` cached tokens occupy."""
    return -(-tokens // PAGE_SIZE)
