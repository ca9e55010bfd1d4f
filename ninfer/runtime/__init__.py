"""Runtime: pages, state slots, passes and sampling; tokens in, tokens out."""

from ninfer.runtime.config import PAGE_SIZE, RuntimeConfig, pages_for
from ninfer.runtime.loop import Runtime

__all__ = ["PAGE_SIZE", "Runtime", "RuntimeConfig", "pages_for"]
