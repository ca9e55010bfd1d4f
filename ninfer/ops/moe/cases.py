"""Input cases of the mixture of experts."""

from functools import partial
from typing import Final

import torch

from ninfer.ops.case import Call, Case, Inputs
from ninfer.ops.moe import route_experts, route_topk, sparse_moe
from ninfer.ops.tensors import ExpertWeights, SharedExpert


def _route(count: int, experts: int, top_k: int, inputs: Inputs) -> Call:
    return Call({"logits": inputs.normal(count, experts, scale=2.0), "top_k": top_k})


def _tied(inputs: Inputs) -> Call:
    return Call({"logits": inputs.integers(0, 3, 6, 32).to(inputs.dtype), "top_k": 8})


def _router(count: int, experts: int, top_k: int, dim: int, form: str, inputs: Inputs) -> Call:
    x, router = inputs.normal(count, dim), inputs.weight(form, experts + 1, dim)
    return Call({"x": x, "router": router, "top_k": top_k})


def _moe(
    count: int,
    experts: int,
    top_k: int,
    dim: int,
    inner: int,
    form: str | tuple[str, str, str, str],
    inputs: Inputs,
) -> Call:
    """`form` is that of all weights, or those of gate/up and down, routed and then shared."""
    forms = (form,) * 4 if isinstance(form, str) else form
    order = [inputs.shuffled(experts)[:top_k] for _ in range(count)]
    ids = torch.stack(order) if order else torch.empty(0, top_k, dtype=torch.int64)
    weights = inputs.uniform(count, top_k, dtype=torch.float32) + 0.1
    arguments = {
        "x": inputs.normal(count, dim),
        "weights": weights / weights.sum(1, keepdim=True),
        "ids": ids.to(inputs.device),
        "experts": ExpertWeights(
            inputs.weight(forms[0], experts * 2 * inner, dim),
            inputs.weight(forms[1], experts * dim, inner),
            experts,
        ),
        "shared": SharedExpert(
            inputs.weight(forms[2], 2 * inner, dim), inputs.weight(forms[3], dim, inner)
        ),
        "shared_score": inputs.normal(count, 1),
    }
    return Call(arguments)


# The 35B's experts.
_STORED: Final = ("Q4G64_F16S", "Q5G64_F16S", "W8G32_F16S", "W8G32_F16S")

CASES: Final = (
    Case(route_topk, "256_of_8", partial(_route, 5, 256, 8)),
    Case(route_topk, "all_experts", partial(_route, 3, 4, 4)),
    Case(route_topk, "no_rows", partial(_route, 0, 8, 2)),
    Case(route_topk, "ties", _tied),
    Case(route_experts, "256_of_8", partial(_router, 5, 256, 8, 320, "BF16")),
    Case(route_experts, "one_row", partial(_router, 1, 16, 2, 2048, "BF16")),
    Case(route_experts, "many_rows", partial(_router, 70, 16, 4, 64, "BF16")),
    Case(route_experts, "w8", partial(_router, 3, 31, 2, 96, "W8G32_F16S")),
    Case(route_experts, "no_rows", partial(_router, 0, 8, 2, 32, "BF16")),
    Case(sparse_moe, "one_row", partial(_moe, 1, 8, 2, 48, 32, "BF16")),
    Case(sparse_moe, "many_rows", partial(_moe, 33, 8, 2, 48, 32, "BF16")),
    Case(sparse_moe, "one_expert", partial(_moe, 4, 1, 1, 16, 24, "BF16")),
    Case(sparse_moe, "eight_of_16", partial(_moe, 3, 16, 8, 64, 16, "BF16")),
    Case(sparse_moe, "no_rows", partial(_moe, 0, 4, 2, 16, 16, "BF16")),
    Case(sparse_moe, "q4", partial(_moe, 5, 4, 2, 128, 64, "Q4G64_F16S")),
    Case(sparse_moe, "w8", partial(_moe, 2, 4, 2, 64, 96, "W8G32_F16S")),
    Case(sparse_moe, "as_stored", partial(_moe, 3, 10, 8, 128, 64, _STORED)),
    Case(sparse_moe, "as_stored_many", partial(_moe, 70, 3, 2, 64, 64, _STORED)),
    Case(sparse_moe, "long_rows", partial(_moe, 2, 2, 1, 560, 32, "Q6G64_F16S")),
    Case(sparse_moe, "nvfp4", partial(_moe, 3, 4, 2, 128, 64, "NVFP4")),
)
