"""Run a fused projection and name its parts."""

import torch
from torch import Tensor

from ninfer import ops
from ninfer.models.qwen3_6.weights import FusedProjection


def project(x: Tensor, fused: FusedProjection) -> dict[str, Tensor]:
    """Each named projection of x [T, K] as [T, rows]; one product per stored matrix."""
    outputs: dict[str, Tensor] = {}
    for matrix, parts, rows in zip(fused.matrices, fused.parts, fused.rows, strict=True):
        product = ops.linear(x, matrix)
        outputs.update(zip(parts, torch.split(product, list(rows), dim=-1), strict=True))
    return outputs
