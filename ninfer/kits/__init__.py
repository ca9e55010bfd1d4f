"""Kits: kernels of a model compiled ahead of time, as a cache that can move to another machine."""

from typing import TYPE_CHECKING

from ninfer.lazy import lazy_exports

if TYPE_CHECKING:
    from ninfer.kits.launches import model_calls, models
    from ninfer.kits.triton_cache import relocate

__all__ = ["model_calls", "models", "relocate"]

__getattr__ = lazy_exports(
    __name__,
    {
        "model_calls": "ninfer.kits.launches",
        "models": "ninfer.kits.launches",
        "relocate": "ninfer.kits.triton_cache",
    },
)
