"""Runtime: pages, state slots, passes and sampling; tokens in, tokens out."""

from ninfer.runtime.config import PAGE_SIZE, RoundOptions, RuntimeConfig, pages_for
from ninfer.runtime.loop import Runtime
from ninfer.runtime.requests import Progress, SequenceRequest
from ninfer.runtime.sequence import Sequence, Status

__all__ = [
    "PAGE_SIZE",
    "Progress",
    "RoundOptions",
    "Runtime",
    "RuntimeConfig",
    "Sequence",
    "SequenceRequest",
    "Status",
    "pages_for",
]
