"""A wrong call is refused with the op, the argument and what was seen."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from ninfer.formats import quantise
from ninfer.ops.cases import ALL_CASES

F64 = torch.float64
BAD: dict[str, tuple[str, str, Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "integers": ("rmsnorm", "odd_offset_True", lambda a: {"x": a["x"].long()}, "x is torch.int64"),
    "columns": ("l2norm", "odd", lambda a: {"x": a["x"].T}, r"x is of strides \(1, 33\)"),
    "scalar": ("l2norm", "odd", lambda a: {"x": torch.tensor(1.0)}, "x is of shape"),
    "weight size": (
        "rmsnorm",
        "odd_offset_True",
        lambda a: {"weight": a["weight"][1:]},
        r"weight is of shape \(32,\), must be of shape \(33,\)",
    ),
    "device": (
        "rmsnorm",
        "odd_offset_True",
        lambda a: {"weight": a["weight"].to("meta")},
        "weight is on meta",
    ),
    "mixed types": ("add", "odd", lambda a: {"y": a["y"].to(F64)}, "y is torch.float64"),
    "twin shape": ("silu_mul", "odd", lambda a: {"up": a["up"][1:]}, "up is of shape"),
    "narrow ids": ("embed", "dense_65", lambda a: {"ids": a["ids"].int()}, "ids is torch.int32"),
    "ids of two dims": (
        "embed",
        "dense_65",
        lambda a: {"ids": a["ids"].view(5, 13)},
        "ids is of shape",
    ),
    "block table": (
        "embed",
        "dense_65",
        lambda a: {"table": quantise(torch.randn(128, 64), "NVFP4")},
        "NVFP4 cannot be read by row",
    ),
    "two axes": (
        "mrope",
        "three_axes",
        lambda a: {"positions": a["positions"][:2]},
        "positions is of shape",
    ),
    "odd rotation": ("mrope", "three_axes", lambda a: {"rotary_dim": 31}, "rotary_dim is 31"),
    "wide rotation": ("mrope", "three_axes", lambda a: {"rotary_dim": 66}, "rotary_dim is 66"),
    "width": (
        "linear",
        "q4g64_f16s",
        lambda a: {"x": a["x"][:, :128]},
        r"weight is of shape \(256, 192\), must be of shape \(N, 128\)",
    ),
    "odd gate": (
        "linear_swiglu",
        "bf16",
        lambda a: {"gate_up": a["gate_up"][1:]},
        "gate_up is of 63 rows",
    ),
    "residual type": (
        "linear_add",
        "bf16",
        lambda a: {"residual": a["residual"].to(F64)},
        "residual is torch.float64",
    ),
    "residual shape": (
        "linear_add",
        "bf16",
        lambda a: {"residual": a["residual"][1:]},
        "residual is of shape",
    ),
    "kv heads": (
        "write_kv",
        "bf16_1x4x256",
        lambda a: {"keys": a["keys"][:, :3], "values": a["values"][:, :3]},
        "cache.keys is of shape",
    ),
    "kv alias": (
        "write_kv",
        "fp32_1x4x256",
        lambda a: {"values": a["cache"].keys[0, :1]},
        "cache is in the memory of an input",
    ),
    "one store": (
        "write_kv",
        "fp32_1x4x256",
        lambda a: {"cache": replace(a["cache"], values=a["cache"].keys)},
        "cache.values is in the memory of cache.keys",
    ),
    "scattered pages": (
        "read_kv",
        "bf16",
        lambda a: {"cache": replace(a["cache"], keys=a["cache"].keys.transpose(0, 1))},
        "cache",
    ),
    "query heads": ("paged_attention", "ragged", lambda a: {"q": a["q"][:, :5]}, "q is of 5 heads"),
    "row counts": (
        "paged_attention",
        "ragged",
        lambda a: {"rows": replace(a["rows"], kv_lengths=a["rows"].kv_lengths[1:])},
        "rows.kv_lengths is of shape",
    ),
    "page table": (
        "paged_attention",
        "ragged",
        lambda a: {"rows": replace(a["rows"], page_table=a["rows"].page_table[0])},
        "rows.page_table is of 1 dims",
    ),
    "state type": (
        "causal_conv_silu",
        "decode",
        lambda a: {"state": replace(a["state"], inputs=a["state"].inputs.to(F64))},
        "state.inputs is torch.float64",
    ),
    "state width": (
        "causal_conv_silu",
        "decode",
        lambda a: {"state": replace(a["state"], inputs=a["state"].inputs[:, 1:])},
        r"state.inputs is of shape \(4, 2, 96\), must be of shape \(S, 3, 96\)",
    ),
    "state alias": (
        "causal_conv_silu",
        "decode",
        lambda a: {"x": a["state"].inputs.view(-1, 96)[:3]},
        "state.inputs is in the memory of an input",
    ),
    "state strides": (
        "causal_conv_silu",
        "decode",
        lambda a: {
            "state": replace(a["state"], inputs=a["state"].inputs.repeat(1, 1, 2)[..., ::2])
        },
        "state.inputs is of strides",
    ),
    "window type": (
        "causal_conv_silu",
        "held",
        lambda a: {"state": replace(a["state"], window=a["state"].window.to(F64))},
        "state.window is torch.float64",
    ),
    "window slots": (
        "causal_conv_silu",
        "held",
        lambda a: {"state": replace(a["state"], window=a["state"].window[1:])},
        "state.window is of 2 slots, must be of 3 slots",
    ),
    "long window": (
        "causal_conv_silu",
        "held",
        lambda a: {"state": replace(a["state"], window=a["state"].window.repeat(1, 64, 1))},
        "state.window is of 64 rows, must be of at most 63 rows",
    ),
    "pending type": (
        "causal_conv_silu",
        "held",
        lambda a: {"state": replace(a["state"], pending=a["state"].pending.int())},
        "state.pending is torch.int32",
    ),
    "held type": (
        "causal_conv_silu",
        "held",
        lambda a: {"rows": replace(a["rows"], held=a["rows"].held.long())},
        "rows.held is torch.int64",
    ),
    "held count": (
        "gated_delta_rule",
        "held_and_not",
        lambda a: {"rows": replace(a["rows"], held=a["rows"].held[1:])},
        "rows.held is of shape",
    ),
    "window lengths": (
        "gated_delta_rule",
        "held_and_not",
        lambda a: {"state": replace(a["state"], betas=a["state"].betas[:, 1:].contiguous())},
        "state.betas is of 4 rows, must be of 5 rows",
    ),
    "window heads": (
        "gated_delta_rule",
        "held_and_not",
        lambda a: {"state": replace(a["state"], keys=a["state"].keys[:, :, :1].contiguous())},
        "state.keys is of shape",
    ),
    "window gate type": (
        "gated_delta_rule",
        "held_and_not",
        lambda a: {"state": replace(a["state"], decays=a["state"].decays.to(F64))},
        "state.decays is torch.float64",
    ),
    "matrix type": (
        "gated_delta_rule",
        "chunk",
        lambda a: {"state": replace(a["state"], matrix=a["state"].matrix.to(F64))},
        "state.matrix is torch.float64",
    ),
    "narrow window": (
        "causal_conv_silu",
        "decode",
        lambda a: {"weight": a["weight"][:1]},
        "weight is of shape",
    ),
    "v heads": (
        "gated_delta_rule",
        "chunk",
        lambda a: {"v": a["v"][:, :3]},
        "v is torch.float32 of shape",
    ),
    "gate type": (
        "gated_delta_rule",
        "chunk",
        lambda a: {"g": a["g"].to(F64)},
        "g is torch.float64",
    ),
    "beta shape": (
        "gated_delta_rule",
        "chunk",
        lambda a: {"beta": a["beta"][1:]},
        "beta is of shape",
    ),
    "gating bias": (
        "gdn_gating",
        "small",
        lambda a: {"dt_bias": a["dt_bias"][1:]},
        "dt_bias is of shape",
    ),
    "top_k": ("route_topk", "256_of_8", lambda a: {"top_k": 257}, "top_k is 257"),
    "expert count": (
        "sparse_moe",
        "one_row",
        lambda a: {"experts": replace(a["experts"], count=7)},
        "experts.gate_up is of shape",
    ),
    "integer weights": (
        "sparse_moe",
        "one_row",
        lambda a: {"weights": a["weights"].long()},
        "weights, shared_score is torch.int64",
    ),
    "limit": ("argmax", "rows_below_9", lambda a: {"limit": 41}, "limit is 41"),
    "no ids": ("sample", "ties", lambda a: {"limit": 0}, "limit is 0"),
    "settings": ("candidates", "ties", lambda a: {"top_p": a["top_p"][1:]}, "top_p is of shape"),
    "integer settings": (
        "candidates",
        "ties",
        lambda a: {"min_p": a["min_p"].long()},
        "min_p is torch.int64, must be floats",
    ),
    "float top_k": (
        "sample",
        "ties",
        lambda a: {"top_k": a["top_k"].float()},
        "top_k is torch.float32, must be integers",
    ),
    "repetition": (
        "penalise",
        "repetition",
        lambda a: {"repetition": a["repetition"][1:]},
        "repetition is of shape",
    ),
    "bias rows": (
        "add_bias",
        "some",
        lambda a: {"rows": a["rows"][1:]},
        "rows is of shape",
    ),
    "mask type": (
        "mask",
        "all_words",
        lambda a: {"allowed": a["allowed"].long()},
        "allowed is torch.int64, must be int32",
    ),
    "mask width": (
        "mask",
        "all_words",
        lambda a: {"allowed": a["allowed"].repeat(1, 2)},
        r"allowed is of shape \(3, 6\), must be of shape \(3, <= 3\)",
    ),
    "too many logprobs": (
        "top_logprobs",
        "ties",
        lambda a: {"n": 301},
        "n is 301, must be in 0..300",
    ),
    "uniforms": ("sample", "ties", lambda a: {"u": a["u"][1:]}, "u is of shape"),
    "counts": (
        "penalise",
        "counts",
        lambda a: {"counts": a["counts"].float()},
        "counts is torch.float32",
    ),
}


@pytest.mark.parametrize("fault", BAD)
def test_wrong_call_is_refused(fault: str):
    op, name, change, message = BAD[fault]
    case = next(c for c in ALL_CASES if (c.op.__name__, c.name) == (op, name))
    arguments = case.make(torch.float32).arguments
    with pytest.raises(ValueError, match=message) as refusal:
        case.op(**{**arguments, **change(arguments)})
    assert "block" in fault or str(refusal.value).startswith(f"{op}: ")
