"""Which tokens of a row may be drawn: ranked lists that grow until the row is cut inside them."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from ninfer.ops.exact import pointwise
from ninfer.ops.sampling.ranking import best

# Lengths at which a ranked list is tried before the whole vocabulary is sorted.
_LENGTHS: Final = (64, 512, 4096)


@dataclass(frozen=True, slots=True)
class Settings:
    """Sampling settings of rows, on the device of the logits. u = 1 asks for the whole list."""

    temperature: Tensor  # [R] float64, > 0
    top_k: Tensor  # [R] int64, 1..N
    top_p: Tensor  # [R] float64
    min_p: Tensor  # [R] float64
    u: Tensor  # [R] float64

    def of(self, rows: Tensor) -> "Settings":
        """The settings of some rows, in ascending order."""
        if rows.shape[0] == self.u.shape[0]:
            return self
        parts = (self.temperature, self.top_k, self.top_p, self.min_p, self.u)
        return Settings(*(part[rows] for part in parts))


@dataclass(frozen=True, slots=True)
class Lists:
    """Ranked candidates of rows; weight 0 behind the last one."""

    ids: Tensor  # [R, C] int64
    weights: Tensor  # [R, C] float64
    mass: Tensor  # [R] float64, sum of all weights, those behind the list included

    def of(self, rows: Tensor) -> "Lists":
        """The lists of some rows."""
        return Lists(self.ids[rows], self.weights[rows], self.mass[rows])

    def with_rows(self, rows: Tensor, lists: "Lists") -> "Lists":
        """These lists with some rows, in ascending order, replaced."""
        if rows.shape[0] == self.mass.shape[0]:
            return lists
        width = max(self.ids.shape[1], lists.ids.shape[1])
        ids, weights, mass = _widened(self.ids, width), _widened(self.weights, width), self.mass
        return Lists(
            ids.index_copy(0, rows, _widened(lists.ids, width)),
            weights.index_copy(0, rows, _widened(lists.weights, width)),
            mass.index_copy(0, rows, lists.mass),
        )


def ranked_lists(x: Tensor, settings: Settings) -> Lists:
    """Candidates of each row of x [R, N], finite at its best, as the contract of `candidates` says.

    With u < 1 a list may end behind the candidate at which its running weight exceeds u * mass.
    How long a list is tried depends on its own row alone, and so do the bits of its weights.
    """
    rows, width = x.shape
    lengths = [n for n in _LENGTHS if n < width] + [width]
    total = _totals(x, settings)
    grows = (settings.top_k == width) & (_is_cut(settings) | (settings.u < 1))
    open_rows = torch.arange(rows, device=x.device)
    empty = x.new_zeros((rows, 1), dtype=torch.float64)
    found = Lists(torch.zeros_like(empty, dtype=torch.int64), empty, empty.squeeze(1))
    for length in lengths:
        fits = grows[open_rows] | (settings.top_k[open_rows] <= length)
        tried = open_rows[fits]
        if tried.numel() == 0:
            continue
        lists, done = _cut(picked(x, tried), total[tried], settings.of(tried), length)
        if done.any():
            found = found.with_rows(tried[done], _trimmed(lists.of(done)))
        open_rows = torch.cat((open_rows[~fits], tried[~done])).sort().values
        if open_rows.numel() == 0:
            break
    return found


def picked(x: Tensor, rows: Tensor) -> Tensor:
    """x[rows] for rows in ascending order, without a copy when they are all."""
    return x if rows.shape[0] == x.shape[0] else x[rows]


def _totals(x: Tensor, settings: Settings) -> Tensor:
    """Sum of all weights of each row where a cut or a draw may ask before the end; else 0."""
    total = x.new_zeros(x.shape[0], dtype=torch.float64)
    asked = (settings.top_p < 1) | ((settings.u < 1) & ~_is_cut(settings))
    asked &= settings.top_k == x.shape[1]
    for row in asked.nonzero().flatten().tolist():
        # Row by row: a reduction over several rows at once may take another order.
        line = x[row].to(torch.float64)
        total[row] = pointwise(torch.exp, (line - line.max()) / settings.temperature[row]).sum()
    return total


def _cut(x: Tensor, total: Tensor, settings: Settings, length: int) -> tuple[Lists, Tensor]:
    """The first `length` candidates of each row, cut, and whether no other ones are needed."""
    ids = best(x, length)
    place = torch.arange(length, device=x.device)
    values = x.gather(1, ids).to(torch.float64)
    heat = settings.temperature.unsqueeze(1)
    weights = pointwise(torch.exp, (values - values[:, :1]) / heat)
    weights = weights * (place < settings.top_k.unsqueeze(1))
    running = weights.cumsum(-1)
    whole = settings.top_k <= length
    mass = total.where(~whole, running[:, -1])
    # Running weights and weights are monotonic, so a count is a position.
    nucleus = 1 + (running < (settings.top_p * mass).unsqueeze(1)).sum(-1)
    nucleus = nucleus.where(settings.top_p < 1, length + 1)
    floor = (weights >= settings.min_p.unsqueeze(1)).sum(-1).where(settings.min_p > 0, length + 1)
    count = torch.minimum(torch.minimum(nucleus, floor.clamp_min(1)), settings.top_k)
    reached = (nucleus <= length) | (floor < length)
    is_cut = _is_cut(settings)
    drawn = ~is_cut & (settings.u < 1) & (running[:, -1] > settings.u * mass)
    kept = weights * (place < count.unsqueeze(1))
    mass = kept.cumsum(-1)[:, -1].where(is_cut, mass)
    return Lists(ids, kept, mass), whole | reached | drawn


def _is_cut(settings: Settings) -> Tensor:
    return (settings.top_p < 1) | (settings.min_p > 0)


def _trimmed(lists: Lists) -> Lists:
    """Without the columns that are weight 0 in every row."""
    width = int((lists.weights > 0).sum(-1).amax())
    return Lists(lists.ids[:, :width], lists.weights[:, :width], lists.mass)


def _widened(x: Tensor, width: int) -> Tensor:
    return pad(x, (0, width - x.shape[1]))
