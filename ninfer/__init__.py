"""NInfer: local inference for a closed set of Qwen checkpoints; public names load lazily."""

from typing import TYPE_CHECKING, Any

from ninfer.version import VERSION as __version__

if TYPE_CHECKING:
    from ninfer.engine import Engine, EngineOptions
    from ninfer.request import SamplingParams

__all__ = ["Engine", "EngineOptions", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import ninfer` costs no torch."""
    if name in ("Engine", "EngineOptions"):
        from ninfer import engine

        return getattr(engine, name)
    if name == "SamplingParams":
        from ninfer.request import SamplingParams

        return SamplingParams
    raise AttributeError(f"module 'ninfer' has no attribute {name!r}")
