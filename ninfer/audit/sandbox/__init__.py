"""A place to run code that a model wrote: limits, no network where possible, one folder."""

from ninfer.audit.sandbox.run import Limits, Ran, run_tool, run_unittest

__all__ = ["Limits", "Ran", "run_tool", "run_unittest"]
