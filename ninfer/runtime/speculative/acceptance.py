"""How likely drafts are right: fading counts for each place in a block, of one source."""

from math import sqrt
from typing import Final

# What one earlier outcome still counts after the next at the same place.
_FADE: Final = 0.97
# Outcomes that the place before, or the prior, is worth.
_PRIOR_WEIGHT: Final = 2.0


class Acceptance:
    """Chance that a draft is right once those before it were."""

    def __init__(self) -> None:
        self._tried: list[float] = []
        self._right: list[float] = []

    def add(self, right: int, *, then_wrong: bool) -> None:
        """A block whose first `right` drafts were right; the next was wrong, or none was left."""
        places = right + then_wrong
        while len(self._tried) < places:
            self._tried.append(0.0)
            self._right.append(0.0)
        for place in range(places):
            self._tried[place] = self._tried[place] * _FADE + 1
            self._right[place] = self._right[place] * _FADE + (place < right)

    def rates(self, count: int, prior: float, hope: float = 0.0) -> list[float]:
        """Estimates for the first `count` places, each leaning on the one before.

        `hope` raises them by so many standard errors of a place's own outcomes.
        """
        rates: list[float] = []
        rate = prior
        for place in range(count):
            if place < len(self._tried):
                total = self._tried[place] + _PRIOR_WEIGHT
                rate = (self._right[place] + _PRIOR_WEIGHT * rate) / total
                rate = min(rate + hope * sqrt(rate * (1 - rate) / total), 1.0)
            rates.append(rate)
        return rates
