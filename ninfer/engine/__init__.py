"""Engine: the one thing that front ends call."""

from typing import TYPE_CHECKING

from ninfer.lazy import lazy_exports

if TYPE_CHECKING:
    from ninfer.engine.async_engine import AsyncEngine
    from ninfer.engine.engine import Engine
    from ninfer.engine.options import EngineOptions, GenerationOptions

__all__ = ["AsyncEngine", "Engine", "EngineOptions", "GenerationOptions"]

__getattr__ = lazy_exports(
    __name__,
    {
        "AsyncEngine": "ninfer.engine.async_engine",
        "Engine": "ninfer.engine.engine",
        "EngineOptions": "ninfer.engine.options",
        "GenerationOptions": "ninfer.engine.options",
    },
)
