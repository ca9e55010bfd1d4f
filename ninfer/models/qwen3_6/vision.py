"""The vision tower and its merger: patches of one image or video to rows of text width."""

from functools import partial
from typing import Final

import torch
from torch import Tensor

from ninfer import ops
from ninfer.models.config import VisionConfig
from ninfer.models.qwen3_6.vision_weights import (
    BiasedWeight,
    LayerNormWeights,
    VisionBlockWeights,
    VisionWeights,
)

# Fixed by the tower, not by a checkpoint's configuration.
_EPS: Final = 1e-6
_THETA: Final = 1e4


def encode_media(
    weights: VisionWeights,
    vision: VisionConfig,
    patches: Tensor,
    grid: tuple[int, int, int],
    *,
    dtype: torch.dtype,
) -> Tensor:
    """Rows [P / merge^2, output] of `dtype` that stand for one image or video in the text model.

    `patches` [P, patch_row] are uint8 pixel values in merge-block order (block row, block column,
    row and column inside), features in the order channel, time, y, x; `grid` is (T, H, W) in
    patches with T * H * W = P. Attention stays inside each of the T time steps.
    """
    assert patches.shape == (grid[0] * grid[1] * grid[2], vision.patch_row), (patches.shape, grid)
    pixels = patches.to(torch.float32).div_(127.5).sub_(1).to(dtype)  # [P, patch_row]
    near = partial(weights.near, device=patches.device)
    embedded = _linear(pixels, near(weights.patch_embedding))
    table = near(weights.position_embedding)
    h = ops.add(embedded, ops.grid_positions(table, grid, merge=vision.merge, dtype=dtype))
    positions = patch_positions(grid, vision.merge, patches.device)
    for block in weights.blocks:
        h = _block(h, near(block), vision, positions, grid[1] * grid[2])
    normed = _norm(h, near(weights.merger_norm)).view(-1, vision.merge_width)
    first = near(weights.merger_fc1)
    hidden = ops.linear_bias(normed, first.weight, first.bias, activation="gelu_erf")
    return _linear(hidden, near(weights.merger_fc2))


def patch_positions(grid: tuple[int, int, int], merge: int, device: torch.device) -> Tensor:
    """Row and column [2, T * H * W] int64 of each patch, in merge-block order, per time step."""
    time, height, width = grid
    cells = torch.arange(height * width, device=device).view(height, width)
    blocks = cells.unflatten(0, (-1, merge)).unflatten(2, (-1, merge)).transpose(1, 2)
    order = blocks.flatten().repeat(time)
    return torch.stack([order // width, order % width])


def _block(
    h: Tensor, weights: VisionBlockWeights, vision: VisionConfig, positions: Tensor, length: int
) -> Tensor:
    qkv = _linear(_norm(h, weights.norm1), weights.qkv)
    dim = vision.hidden // vision.heads
    query, key, value = qkv.unflatten(-1, (3, vision.heads, dim)).unbind(1)  # [P, heads, dim]
    query = ops.rope_2d(query, positions, theta=_THETA)
    key = ops.rope_2d(key, positions, theta=_THETA)
    mixed = ops.slice_attention(query, key, value, length=length, scale=dim**-0.5)
    h = ops.add(_linear(mixed.flatten(1), weights.output), h)
    hidden = ops.linear_bias(
        _norm(h, weights.norm2), weights.fc1.weight, weights.fc1.bias, activation="gelu_tanh"
    )
    return ops.add(_linear(hidden, weights.fc2), h)


def _linear(x: Tensor, biased: BiasedWeight) -> Tensor:
    return ops.linear_bias(x, biased.weight, biased.bias)


def _norm(x: Tensor, weights: LayerNormWeights) -> Tensor:
    return ops.layer_norm(x, weights.weight, weights.bias, eps=_EPS)
