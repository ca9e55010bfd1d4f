"""The largest entries of long rows in exact order, without sorting the rows."""

import math
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

# Rows up to this long are sorted whole.
_SHORT: Final = 2048


def best(x: Tensor, count: int) -> Tensor:
    """Columns of the `count` largest entries of each row of x [R, N], lower column first on ties.

    -> [R, count] int64; 1 <= count <= N. A row with NaN gives any columns.
    """
    width = x.shape[1]
    # Sorting is cheap for a few thousand entries, so the larger part is left to a second round.
    block = 2 << round(math.log2(width / count) / 2)
    if width <= _SHORT or 2 * count * block >= width:
        return _sorted(x)[:, :count]
    # By (maximum, lower block first) every entry of the blocks behind the first `count` is beaten
    # by one entry of each of these.
    padded = pad(x, (0, -width % block), value=-torch.inf)
    blocks = padded.unflatten(1, (-1, block))  # [R, N / block, block]
    chosen = _sorted(blocks.amax(-1))[:, :count].sort(-1).values
    entries = blocks.gather(1, chosen.unsqueeze(-1).expand(-1, -1, block)).flatten(1)
    inside = best(entries, count)
    return chosen.gather(1, inside // block) * block + inside % block


def _sorted(x: Tensor) -> Tensor:
    return x.sort(dim=-1, descending=True, stable=True).indices
