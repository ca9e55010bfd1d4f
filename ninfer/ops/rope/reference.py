"""Rotary position embedding in plain torch."""

import torch
from torch import Tensor

from ninfer.ops.precision import wide


def mrope(x: Tensor, positions: Tensor, *, theta: float, rotary_dim: int) -> Tensor:
    """See the contract."""
    dtype = wide(x)
    half = rotary_dim // 2
    cosine, sine = _rotation(positions, theta, half, dtype)  # [T, 1, half]
    first = x[..., :half].to(dtype)
    second = x[..., half:rotary_dim].to(dtype)
    parts = (
        (first * cosine - second * sine).to(x.dtype),
        (second * cosine + first * sine).to(x.dtype),
        x[..., rotary_dim:],
    )
    return torch.cat(parts, dim=-1)


def _rotation(
    positions: Tensor, theta: float, half: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    # In float32 the product position * frequency is off by 0.06 rad at a million tokens.
    pair = torch.arange(half, dtype=torch.float64, device=positions.device)
    frequency = torch.pow(theta, pair / -half)
    axis = torch.arange(half, device=positions.device) % 3
    angle = positions[axis].T * frequency  # [T, half]
    return torch.cos(angle).to(dtype).unsqueeze(1), torch.sin(angle).to(dtype).unsqueeze(1)
