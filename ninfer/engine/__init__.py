"""Engine: the one thing that front ends call."""

from typing import TYPE_CHECKING

from ninfer.lazy import lazy_exports

if TYPE_CHECKING:
    from ninfer.engine.async_engine import AsyncEngine
    from ninfer.engine.engine import Engine
    from ninfer.engine.generation_options import GenerationOptions
    from ninfer.engine.generations import Generations
    from ninfer.engine.options import EngineOptions
    from ninfer.engine.reports import EngineFacts, EngineSnapshot
    from ninfer.engine.text_side import TextSide
    from ninfer.frontend import SourceRules, normalise, parse_conversation
    from ninfer.frontend.media.download import DownloadRules

__all__ = [
    "AsyncEngine",
    "DownloadRules",
    "Engine",
    "EngineFacts",
    "EngineOptions",
    "EngineSnapshot",
    "GenerationOptions",
    "Generations",
    "SourceRules",
    "TextSide",
    "normalise",
    "parse_conversation",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "AsyncEngine": "ninfer.engine.async_engine",
        "DownloadRules": "ninfer.frontend.media.download",
        "Engine": "ninfer.engine.engine",
        "EngineFacts": "ninfer.engine.reports",
        "EngineOptions": "ninfer.engine.options",
        "EngineSnapshot": "ninfer.engine.reports",
        "GenerationOptions": "ninfer.engine.generation_options",
        "Generations": "ninfer.engine.generations",
        "SourceRules": "ninfer.frontend",
        "TextSide": "ninfer.engine.text_side",
        "normalise": "ninfer.frontend",
        "parse_conversation": "ninfer.frontend",
    },
)
