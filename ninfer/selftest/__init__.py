"""Right or wrong on this machine: what stands in the way of running, and what to do about it."""

from typing import TYPE_CHECKING

from ninfer.lazy import lazy_exports

if TYPE_CHECKING:
    from ninfer.selftest.doctor import examine
    from ninfer.selftest.symptom import Symptom

__all__ = ["Symptom", "examine"]

__getattr__ = lazy_exports(
    __name__,
    {"examine": "ninfer.selftest.doctor", "Symptom": "ninfer.selftest.symptom"},
)
