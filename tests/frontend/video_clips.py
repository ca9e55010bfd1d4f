"""Small synthetic clips that the reference of videos was made from."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from media_files import noise


@dataclass(frozen=True)
class Clip:
    """`count` frames of one size at `rate` frames a second."""

    count: int
    height: int
    width: int
    rate: Fraction = Fraction(24)

    @property
    def fps(self) -> float:
        """Frames a second as a number."""
        return float(self.rate)

    def frames(self) -> list[np.ndarray]:
        """RGB frames, each different from the others."""
        return [noise(self.height, self.width, seed=index) for index in range(self.count)]


CLIPS: Final = {
    "two_frames": Clip(2, 48, 80, Fraction(30)),
    "three_of_three": Clip(3, 33, 65, Fraction(1)),
    "four_of_ten": Clip(10, 64, 96, Fraction(25)),
    "odd_five": Clip(61, 40, 56),
    "ntsc": Clip(70, 31, 47, Fraction(30_000, 1001)),
    "narrow": Clip(3, 20, 200, Fraction(2)),
    "tiny": Clip(4, 3, 5, Fraction(10)),
    "tall": Clip(8, 130, 34, Fraction(5)),
}
