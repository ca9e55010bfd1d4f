"""Vision ops in plain torch."""

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.ops.linear.reference import linear
from ninfer.ops.precision import wide
from ninfer.ops.tensors import Weight

# Scores held at once: 64 MiB of float32.
_SCORES = 1 << 24


def linear_bias(x: Tensor, weight: Weight, bias: Tensor, *, activation: str = "none") -> Tensor:
    """See the contract."""
    dtype = wide(x)
    product = linear(x.to(dtype), weight) + bias.to(dtype)
    if activation != "none":
        product = functional.gelu(
            product, approximate="tanh" if activation == "gelu_tanh" else "none"
        )
    return product.to(x.dtype)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """See the contract."""
    dtype = wide(x)
    normed = functional.layer_norm(x.to(dtype), x.shape[-1:], weight.to(dtype), bias.to(dtype), eps)
    return normed.to(x.dtype)


def grid_positions(
    table: Tensor, grid: tuple[int, int, int], *, merge: int, dtype: torch.dtype
) -> Tensor:
    """See the contract."""
    time, height, width = grid
    side = round(table.shape[0] ** 0.5)
    cells = table.to(wide(table)).view(side, side, -1)
    rows = _between(cells, height)  # [H, S, D]
    every = _between(rows.transpose(0, 1), width)  # [W, H, D]
    blocks = every.transpose(0, 1).unflatten(0, (-1, merge)).unflatten(2, (-1, merge))
    flat: Tensor = blocks.transpose(1, 2).flatten(0, 3)  # [H * W, D]
    return flat.to(dtype).repeat(time, 1)


def _between(cells: Tensor, count: int) -> Tensor:
    """`count` evenly spaced rows from the first to the last of cells [S, ...], interpolated."""
    last = cells.shape[0] - 1
    steps = torch.arange(count, dtype=torch.float64, device=cells.device)
    at = steps * last / max(count - 1, 1)
    low = at.floor().long()
    share = (at - low).to(cells.dtype).view(-1, *[1] * (cells.ndim - 1))
    return cells[low] * (1 - share) + cells[(low + 1).clamp_max(last)] * share


def rope_2d(x: Tensor, positions: Tensor, *, theta: float) -> Tensor:
    """See the contract."""
    dtype = wide(x)
    quarter = x.shape[2] // 4
    exponent = torch.arange(quarter, dtype=torch.float64, device=x.device) / -quarter
    frequency = torch.pow(theta, exponent)
    angle = (positions.T.unsqueeze(-1) * frequency).flatten(1).unsqueeze(1)  # [P, 1, D / 2]
    cosine, sine = torch.cos(angle).to(dtype), torch.sin(angle).to(dtype)
    first, second = x.to(dtype).chunk(2, dim=-1)
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    return torch.cat(turned, dim=-1).to(x.dtype)


def slice_attention(q: Tensor, k: Tensor, v: Tensor, *, length: int, scale: float) -> Tensor:
    """See the contract."""
    out = q.new_empty(q.shape)
    for start in range(0, q.shape[0], length):
        span = slice(start, start + length)
        out[span] = _attend(q[span], k[span], v[span], scale)
    return out


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """One slice [n, H, D], in blocks of queries."""
    dtype = wide(q)
    queries = q.to(dtype).transpose(0, 1)  # [H, n, D]
    keys = k.to(dtype).permute(1, 2, 0)  # [H, D, n]
    values = v.to(dtype).transpose(0, 1)  # [H, n, D]
    step = max(_SCORES // (q.shape[0] * q.shape[1]), 1)
    blocks = [
        torch.bmm(torch.bmm(block, keys).mul_(scale).softmax(-1), values)
        for block in queries.split(step, dim=1)
    ]
    return torch.cat(blocks, dim=1).transpose(0, 1)
