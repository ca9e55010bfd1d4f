"""NInfer: local inference for a closed set of Qwen checkpoints; public names load lazily."""

from typing import TYPE_CHECKING

from ninfer.lazy import lazy_exports
from ninfer.version import VERSION as __version__

if TYPE_CHECKING:
    from ninfer.engine import Engine, EngineOptions, GenerationOptions
    from ninfer.request import SamplingParams

__all__ = ["Engine", "EngineOptions", "GenerationOptions", "SamplingParams", "__version__"]

__getattr__ = lazy_exports(
    __name__,
    {
        "Engine": "ninfer.engine",
        "EngineOptions": "ninfer.engine",
        "GenerationOptions": "ninfer.engine",
        "SamplingParams": "ninfer.request",
    },
)
