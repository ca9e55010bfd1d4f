"""The gates and the gated delta rule by Triton kernels."""

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from ninfer.errors import UnsupportedError
from ninfer.ops.gdn import chunk_kernels, kernels
from ninfer.ops.kernel_types import next_power, supported
from ninfer.ops.launch import INTERPRETED, architecture, launch
from ninfer.ops.tensors import DeltaState, RaggedRows

CHUNK: Final[int] = kernels.CHUNK.value
_GATES: Final = 256
# Widest head: a matrix has to fit the registers of one program.
_WIDEST: Final = 128


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """How chunks are gone through; none of it changes what a row is computed from."""

    columns: int  # value columns of a program
    warps: int = 4
    stages: int = 1  # chunks whose operands are on their way or in use


def scan_plan(architecture: int) -> ScanPlan:
    """The sizes for an architecture.

    On Hopper 48 heads are 192 programs, two on a multiprocessor: one wave, where 16 columns would
    take two. Others spill 800 bytes a thread with more than 16 columns.
    """
    return ScanPlan(32 if architecture == 90 else 16)


def gdn_gating(a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor) -> tuple[Tensor, Tensor]:
    """See the contract."""
    supported("gdn_gating", a.dtype)
    g, beta = (torch.empty(a.shape, dtype=torch.float32, device=a.device) for _ in range(2))
    if g.numel():
        sizes = (a.shape[0], a.stride(0), b.stride(0))
        grid = (-(-g.numel() // _GATES),)
        launch(
            kernels.gating,
            grid,
            *(a, b, a_log, dt_bias, g, beta, *sizes),
            H=a.shape[1],
            BLOCK=_GATES,
            num_warps=2,
        )
    return g, beta


def gated_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: DeltaState, rows: RaggedRows
) -> Tensor:
    """See the contract. Held rows behind the end of their window are dropped."""
    return composed(q, k, v, g, beta, state, rows, plan=None)


def composed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    state: DeltaState,
    rows: RaggedRows,
    *,
    plan: ScanPlan | None,
) -> Tensor:
    """The rule; `plan` replaces the sizes for whole chunks, for measurements."""
    check_heads("gated_delta_rule", k.shape[2], v.shape[2])
    parts = Parts(q, k, v, g.contiguous(), beta.contiguous())
    out = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    if not out.numel():
        return out
    _rows(parts, state, rows, out, kernels.BEFORE.value)
    if may_have_chunks(v.shape[0], rows):
        whole_chunks(parts, state, rows, out, plan)
        _rows(parts, state, rows, out, kernels.BEHIND.value)
    if rows.held is not None and state.window:
        _keep(parts, state, rows)
    return out


def may_have_chunks(count: int, rows: RaggedRows) -> bool:
    """Whether a call of so many rows can hold a whole chunk, as far as the host knows."""
    longest = count if rows.longest is None else rows.longest
    return min(count, longest) >= CHUNK


def check_heads(op: str, key: int, value: int) -> None:
    """Raise UnsupportedError for heads too wide for the kernels."""
    if max(key, value) > _WIDEST:
        raise UnsupportedError(
            f"{op}: no Triton kernel for heads of {key} keys and {value} values; at most {_WIDEST}"
        )


@dataclass(frozen=True, slots=True)
class Parts:
    """The inputs of the rule; g and beta contiguous."""

    q: Tensor  # [T, Hk, Dk]
    k: Tensor  # [T, Hk, Dk]
    v: Tensor  # [T, Hv, Dv]
    g: Tensor  # [T, Hv]
    beta: Tensor  # [T, Hv]

    @property
    def strides(self) -> tuple[int, ...]:
        """Of rows and heads of q, k and v."""
        return tuple(x.stride(i) for x in (self.q, self.k, self.v) for i in (0, 1))


def tile_sizes(key: int, value: int) -> dict[str, int]:
    """The tile of a matrix in the kernels that go row by row."""
    return {"DK": key, "DV": value, "L": max(next_power(key) // 4, 1), "V": next_power(value)}


def row_warps(key: int, value: int) -> int:
    """Warps of a program that has a whole matrix: 128 numbers for each thread."""
    return min(max(next_power(key) * next_power(value) // 4096, 1), 4)


def _rows(parts: Parts, state: DeltaState, rows: RaggedRows, out: Tensor, part: int) -> None:
    heads, value = out.shape[1:]
    key_heads, key = parts.k.shape[1:]
    launch(
        kernels.delta_rows,
        (heads, rows.state_slots.shape[0]),
        *(parts.q, parts.k, parts.v, parts.g, parts.beta, out),
        *(state.matrix, state.keys, state.values, state.decays, state.betas, state.pending),
        *(rows.offsets, rows.kv_lengths, rows.state_slots, rows.held),
        *parts.strides,
        state.window,
        part,
        key**-0.5,
        HEADS=heads,
        GROUP=heads // key_heads,
        **tile_sizes(key, value),
        STATE=supported("gated_delta_rule", state.matrix.dtype),
        TYPE=supported("gated_delta_rule", out.dtype),
        PLAIN=INTERPRETED,
        num_warps=row_warps(key, value),
    )


def _keep(parts: Parts, state: DeltaState, rows: RaggedRows) -> None:
    heads, value = parts.v.shape[1:]
    key_heads, key = parts.k.shape[1:]
    launch(
        kernels.keep_rows,
        (heads, rows.state_slots.shape[0]),
        *(parts.k, parts.v, parts.g, parts.beta),
        *(state.keys, state.values, state.decays, state.betas),
        *(rows.offsets, rows.state_slots, rows.held),
        *parts.strides[2:],
        state.window,
        HEADS=heads,
        GROUP=heads // key_heads,
        DK=key,
        DV=value,
        K=next_power(key),
        V=next_power(value),
        num_warps=1,
    )


def whole_chunks(
    parts: Parts, state: DeltaState, rows: RaggedRows, out: Tensor, plan: ScanPlan | None = None
) -> None:
    """Rows of whole chunks, into out [T, Hv, Dv], and their effect on the matrices."""
    plan = plan or scan_plan(architecture(out))
    heads, value = out.shape[1:]
    key_heads, key = parts.k.shape[1:]
    chunks = out.shape[0] // CHUNK
    device, sequences = out.device, rows.state_slots.shape[0]
    squares = (
        torch.empty((chunks, heads, CHUNK, CHUNK), dtype=torch.float32, device=device)
        for _ in range(2)
    )
    sides = torch.empty((chunks, heads, 2, CHUNK), dtype=torch.float32, device=device)
    scratch = (*squares, sides)
    options: dict[str, Any] = {
        "HEADS": heads,
        "GROUP": heads // key_heads,
        "DK": key,
        "K": max(next_power(key), 16),
        "BLOCK_B": next_power(sequences),
        "HALF": operand(out.dtype),
    }
    launch(
        chunk_kernels.prepare,
        (chunks, heads),
        *(parts.q, parts.k, parts.g, parts.beta, *scratch),
        *(rows.offsets, rows.kv_lengths, rows.held, sequences, *parts.strides[:4]),
        **options,
        num_warps=4,
    )
    launch(
        chunk_kernels.scan,
        (-(-value // plan.columns), heads, sequences),
        *(parts.q, parts.k, parts.v, *scratch, out, state.matrix),
        *(rows.offsets, rows.kv_lengths, rows.state_slots, rows.held, sequences),
        *parts.strides,
        key**-0.5,
        **options,
        DV=value,
        COLUMNS=plan.columns,
        STATE=supported("gated_delta_rule", state.matrix.dtype),
        TYPE=supported("gated_delta_rule", out.dtype),
        PLAIN=INTERPRETED,
        num_warps=plan.warps,
        num_stages=plan.stages,
    )


def operand(dtype: torch.dtype) -> Any:
    """The type that chunks are multiplied in: parts in bf16, which has the range of float32."""
    plain = INTERPRETED or dtype is not torch.bfloat16
    return supported("gated_delta_rule", torch.float32 if plain else dtype)
