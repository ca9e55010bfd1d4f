"""Picture sizes that fit a pixel budget, resizing, and cutting pictures into patches."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ninfer.errors import PromptError
from ninfer.frontend.media.sizes import PixelSizes

# The Qwen-VL processors refuse longer strips.
_MAX_RATIO: Final = 200

Pixels = NDArray[np.uint8]


def fit(
    height: int, width: int, sizes: PixelSizes, place: str, *, frames: int = 1, padded: int = 1
) -> tuple[int, int]:
    """Height and width after resizing: multiples of the cell within the pixel budget.

    The rule of the published Qwen-VL processors: both sides are rounded (half to even); if that
    breaks the budget, both are scaled by one factor and rounded inwards. The budget counts `padded`
    frames, the factor `frames`. Raises PromptError for a strip longer than 200 to 1.
    """
    if max(height, width) > _MAX_RATIO * min(height, width):
        raise PromptError(
            f"{place} is {width} x {height} pixels; the longer side may be at most {_MAX_RATIO}"
            " times the shorter"
        )
    cell = sizes.cell
    rows, columns = round(height / cell) * cell, round(width / cell) * cell
    total = padded * rows * columns
    if total > sizes.high:
        factor = math.sqrt(frames * height * width / sizes.high)
        rows, columns = (max(cell, math.floor(s / factor / cell) * cell) for s in (height, width))
    elif total < sizes.low:
        factor = math.sqrt(sizes.low / (frames * height * width))
        rows, columns = (math.ceil(s * factor / cell) * cell for s in (height, width))
    return rows, columns


def resize(image: Image.Image, height: int, width: int) -> Pixels:
    """Pixels [height, width, 3] of an RGB picture after antialiased bicubic resizing.

    Each pass rounds to 8 bits, so their order shows. Rows come first, as in the published
    processors; Pillow 13 and later would choose by cost if asked for both at once.
    """
    for size in ((width, image.height), (width, height)):
        if image.size != size:
            image = image.resize(size, Image.Resampling.BICUBIC)
    return np.asarray(image)


def patchify(frames: Sequence[Pixels], sizes: PixelSizes) -> tuple[Pixels, tuple[int, int, int]]:
    """Patches [T * H * W, 3 * temporal * patch^2] and their grid (T, H, W).

    `frames` are [height, width, 3] of one size, sides multiples of the cell. The last one is
    repeated until their number is a multiple of `temporal`. Patches come step by step in
    merge-block order (block row, block column, row and column inside); features are in the order
    channel, time, y, x.
    """
    missing = -len(frames) % sizes.temporal
    pixels = np.stack([*frames, *[frames[-1]] * missing])
    count, height, width, channels = pixels.shape
    grid = (count // sizes.temporal, height // sizes.patch, width // sizes.patch)
    blocks = (grid[1] // sizes.merge, grid[2] // sizes.merge)
    shape = (
        *(grid[0], sizes.temporal),
        *(blocks[0], sizes.merge, sizes.patch),
        *(blocks[1], sizes.merge, sizes.patch),
        channels,
    )
    ordered = pixels.reshape(shape).transpose(0, 2, 5, 3, 6, 8, 1, 4, 7)
    return np.ascontiguousarray(ordered).reshape(math.prod(grid), -1), grid
