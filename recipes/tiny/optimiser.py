"""Muon for the matrices of the layers, AdamW for everything else."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


class Muon(torch.optim.Optimizer):
    """Momentum whose matrices are made orthogonal before each step (Jordan et al., 2024).

    Updates are scaled by 0.2 sqrt(max(rows, columns)) to the size of AdamW's (Liu et al., "Muon is
    scalable for LLM training", 2025), so both take the same rate. Parameters of one shape are
    stepped together.
    """

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float, momentum: float = 0.95, decay: float = 0.05
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # never has a closure
        """One step from the gradients that are there."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes[parameter.shape].append(parameter)
            for parameters in shapes.values():
                self._step(parameters, group)

    def _step(self, parameters: list[nn.Parameter], group: dict[str, Any]) -> None:
        momentum = group["momentum"]
        found = [p.grad for p in parameters if p.grad is not None]
        weights: list[Tensor] = list(parameters)
        grads = torch.stack(found)
        buffers = [self.state[p].setdefault("buffer", torch.zeros_like(p)) for p in parameters]
        torch._foreach_lerp_(buffers, found, 1 - momentum)
        ahead = grads.lerp(torch.stack(buffers), momentum)
        update = _orthogonal(ahead.flatten(0, -3)).view_as(ahead)
        scale = 0.2 * max(ahead.shape[-2:]) ** 0.5
        torch._foreach_mul_(weights, 1 - group["lr"] * group["decay"])
        torch._foreach_add_(weights, list(update.to(grads.dtype)), alpha=-group["lr"] * scale)


def _orthogonal(x: Tensor) -> Tensor:
    """Nearest semi-orthogonal matrices of x [N, R, C], roughly: five Newton-Schulz steps."""
    tall = x.shape[-2] > x.shape[-1]
    y = (x.transpose(-1, -2) if tall else x).bfloat16()
    y = y / (y.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = y @ y.transpose(-1, -2)
        y = 3.4445 * y + (-4.7750 * gram + 2.0315 * gram @ gram) @ y
    return y.transpose(-1, -2) if tall else y


def optimisers(model: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """Muon over matrices of layers; AdamW over tables, norms, biases, gates and convolutions."""
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        is_table = any(part in name for part in ("embed", "lm_head", "conv1d", "selector"))
        is_gate = any(part in name for part in ("in_proj_a", "in_proj_b", "mlp.gate.", "_gate.w"))
        wanted = matrices if parameter.ndim >= 2 and not (is_table or is_gate) else others
        wanted.append(parameter)
    cuda = others[0].is_cuda
    return [
        Muon(matrices, rate),
        torch.optim.AdamW(others, rate, betas=(0.9, 0.95), weight_decay=0.0, fused=cuda),
    ]
