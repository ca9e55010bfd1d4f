"""Draws on a card at the models' sizes: settings in every mix, rules that leave out some rows."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ninfer.ops.tensors import AllowedTokens, DrawSettings, TokenBias, TokenPenalties

VOCABULARY, LIMIT = 248_320, 248_077


def pick(values: list[float], rows: int) -> Tensor:
    return torch.tensor(values, device="cuda")[torch.randint(len(values), (rows,), device="cuda")]


def mixed_draws(rows: int) -> DrawSettings:
    """Settings in no order: greedy rows, every cut alone and with others."""

    def integers(low: int, high: int) -> Tensor:
        return torch.randint(low, high, (rows,), device="cuda")

    return DrawSettings(
        temperature=pick([0.0, 0.6, 1.0, 1.4], rows).double(),
        top_k=pick([0, 0, 0, 20, 1, 121, 122, 123, 5000], rows).long(),
        top_p=pick([1.0, 0.9, 1.0, 0.3, 0.999], rows).double(),
        min_p=pick([0.0, 0.0, 0.02, 1e-6], rows).double(),
        seeds=integers(-(2**63), 2**63 - 1),
        positions=integers(0, 2**18),
        purposes=integers(0, 6),
    )


def rules(rows: int) -> dict[str, Any]:
    ids = torch.stack([torch.randperm(LIMIT, device="cuda")[:4] for _ in range(rows)])
    ids[::2, 2:] = -1

    def integers(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, device="cuda")

    return {
        "bias": TokenBias(ids, torch.randn(rows, 4, device="cuda") * 8),
        "penalties": TokenPenalties(
            integers(0, 3, 4, VOCABULARY).int(),
            integers(-1, 4, rows),
            integers(-1, LIMIT, rows, 3),
            torch.rand(rows, device="cuda"),
            torch.randn(rows, device="cuda"),
            torch.rand(rows, device="cuda") + 0.5,
        ),
        "allowed": AllowedTokens(
            integers(-(2**31), 2**31, 2, VOCABULARY // 32).int(), integers(-1, 2, rows)
        ),
    }


def cut_rows(view: Any, part: slice) -> Any:
    names = [name for name in view.__dataclass_fields__ if name not in ("counts", "masks")]
    return replace(view, **{name: getattr(view, name)[part].clone() for name in names})
