"""Rotary position embedding in plain torch."""

import torch
from torch import Tensor

from ninfer.ops.precision import wide
from ninfer.ops.rope.yarn import magnitude, ramp


def mrope(
    x: Tensor,
    positions: Tensor,
    *,
    theta: float,
    rotary_dim: int,
    factor: float = 1.0,
    native: int = 1,
) -> Tensor:
    """See the contract."""
    dtype = wide(x)
    half = rotary_dim // 2
    frequency, scale = _frequencies(theta, rotary_dim, factor, native)
    cosine, sine = _rotation(positions, frequency.to(positions.device), scale, dtype)
    first = x[..., :half].to(dtype)
    second = x[..., half:rotary_dim].to(dtype)
    parts = (
        (first * cosine - second * sine).to(x.dtype),
        (second * cosine + first * sine).to(x.dtype),
        x[..., rotary_dim:],
    )
    return torch.cat(parts, dim=-1)


def _frequencies(theta: float, rotary_dim: int, factor: float, native: int) -> tuple[Tensor, float]:
    """Radians a position of each pair [half] float64, and what rotated numbers grow by."""
    half = rotary_dim // 2
    pair = torch.arange(half, dtype=torch.float64)
    frequency = torch.pow(theta, pair / -half)
    if factor == 1:
        return frequency, 1.0
    low, high = ramp(theta, rotary_dim, native)
    slowed = ((pair - low) / (high - low)).clamp(0, 1)
    return frequency * (1 - slowed) + frequency / factor * slowed, magnitude(factor)


def _rotation(
    positions: Tensor, frequency: Tensor, scale: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Cosines and sines [T, 1, half]."""
    # In float32 the product position * frequency is off by 0.06 rad at a million tokens.
    axis = torch.arange(frequency.shape[0], device=positions.device) % 3
    angle = positions[axis].T * frequency  # [T, half]
    cosine, sine = torch.cos(angle) * scale, torch.sin(angle) * scale
    return cosine.to(dtype).unsqueeze(1), sine.to(dtype).unsqueeze(1)
