"""The CUDA form of the whole Gated DeltaNet: rows outside of chunks by one kernel of our own.

For heads of 128 in bfloat16. Whole chunks are the portable form's. Calls can be captured into CUDA
graphs once `ready` has run; on Hopper and later they are programmatic dependent launches.
"""

import struct
from typing import Final

import torch
from torch import Tensor

from ninfer.errors import UnsupportedError
from ninfer.ops.delta_net import portable
from ninfer.ops.delta_net.row_plan import WIDTH, RowPlan, row_plan
from ninfer.ops.dispatch import register
from ninfer.ops.gdn.kernels import BEFORE
from ninfer.ops.linear.compiler import Program
from ninfer.ops.linear.launcher import Kernel, Launch, architecture, kernel, start
from ninfer.ops.tensors import ConvState, DeltaRows, DeltaState, DeltaWeights, RaggedRows

FORM: Final = "cuda"
SOURCE: Final = "delta_net/rows.cu"
_NAME: Final = "delta_rows"
_TAPS: Final = 4
# Elements that are read at once, and their bytes.
_UNIT: Final = 4
_ALIGNMENT: Final = 16


def delta_net(
    x: DeltaRows,
    weights: DeltaWeights,
    conv: ConvState,
    delta: DeltaState,
    rows: RaggedRows,
    *,
    eps: float,
) -> Tensor:
    """See the contract. Raises UnsupportedError for what `serves` denies."""
    if not serves(x, weights, delta):
        raise UnsupportedError(
            f"delta_net: the CUDA form takes bfloat16 rows on a card, heads of {WIDTH}, {_TAPS} "
            f"taps and aligned rows, got {x.value.dtype} {tuple(x.value.shape)} on "
            f"{x.value.device}, {weights.convolution.shape[0]} taps"
        )
    return portable.composed(x, weights, conv, delta, rows, eps=eps, single=launch_rows)


def serves(x: DeltaRows, weights: DeltaWeights, delta: DeltaState) -> bool:
    """Whether this form computes such a call: else another tier has to."""
    wide = (x.query, x.key, x.value, x.gate)
    floats = (weights.a_log, weights.dt_bias, delta.decays, delta.betas)
    halves = (*wide, x.a, x.b, weights.convolution, weights.norm, delta.keys, delta.values)
    return (
        all(part.device.type == "cuda" for part in halves)
        and all(part.dtype is torch.bfloat16 for part in halves)
        and all(part.dtype is torch.float32 for part in floats)
        and delta.matrix.dtype in (torch.float32, torch.bfloat16)
        and x.key.shape[2] == x.value.shape[2] == WIDTH
        and weights.convolution.shape[0] == _TAPS
        and all(_is_aligned(part) for part in wide)
    )


def ready(device: torch.device, heads: int, key_heads: int, matrix: torch.dtype) -> None:
    """Build and load what calls with these heads need; after this a call compiles nothing.

    Raises UnsupportedError when the kernel can be neither found nor compiled.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    plan = row_plan(architecture(index))
    _loaded(index, plan, heads, key_heads, halves=matrix is torch.bfloat16)


def program(number: int, plan: RowPlan, heads: int, key_heads: int, *, halves: bool) -> Program:
    """The kernel for an architecture and heads, as a kit has to hold it."""
    return Program.of(SOURCE, number, plan.defines(heads, heads // key_heads, halves=halves))


def launch_rows(
    x: DeltaRows,
    weights: DeltaWeights,
    conv: ConvState,
    delta: DeltaState,
    rows: RaggedRows,
    out: Tensor,
    eps: float,
    part: int,
    plan: RowPlan | None = None,
) -> None:
    """Start the kernel for the rows of one part; `plan` replaces the sizes, for measurements."""
    device = out.device.index
    heads, key_heads = out.shape[1], x.key.shape[1]
    plan = plan or row_plan(architecture(device))
    halves = delta.matrix.dtype is torch.bfloat16
    found = _loaded(device, plan, heads, key_heads, halves=halves)
    tensors = arguments(x, weights, conv, delta, rows, out)
    blocks = plan.pieces * heads * rows.state_slots.shape[0]
    # Behind the chunks' kernels, which end before the next begins, there is nothing to foresee.
    how = Launch(
        blocks, plan.threads, plan.shared_bytes, plan.pieces, dependent=part == BEFORE.value
    )
    addresses = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    start(found, how, addresses, sizes(x, conv, delta, eps, part))


def arguments(
    x: DeltaRows,
    weights: DeltaWeights,
    conv: ConvState,
    delta: DeltaState,
    rows: RaggedRows,
    out: Tensor,
) -> tuple[Tensor | None, ...]:
    """The address parameters of the kernel, in order."""
    return (
        *(x.query, x.key, x.value, x.gate, x.a, x.b, out),
        *(weights.convolution, weights.a_log, weights.dt_bias, weights.norm),
        *(conv.inputs, conv.window),
        *(delta.matrix, delta.keys, delta.values, delta.decays, delta.betas),
        *(portable.counters(delta), delta.pending),
        *(rows.offsets, rows.kv_lengths, rows.state_slots, rows.held),
    )


def sizes(x: DeltaRows, conv: ConvState, delta: DeltaState, eps: float, part: int) -> list[int]:
    """The integers of the kernel, in order; eps as the bits of a float32."""
    (bits,) = struct.unpack("<i", struct.pack("<f", eps))
    strides = [part.stride(0) for part in (x.query, x.key, x.value, x.gate, x.a, x.b)]
    return [*strides, conv.window.shape[1], delta.window, part, bits, delta.matrix.shape[0]]


def _loaded(device: int, plan: RowPlan, heads: int, key_heads: int, *, halves: bool) -> Kernel:
    made = program(architecture(device), plan, heads, key_heads, halves=halves)
    return kernel(device, made.source, _NAME, made.defines)


def _is_aligned(part: Tensor) -> bool:
    """Rows and heads that can be read in units of four elements."""
    strides = part.stride()[:-1]
    return part.data_ptr() % (_UNIT * part.element_size()) == 0 and not any(
        stride % _UNIT for stride in strides
    )


# In no tier yet: benchmarks and tests choose it by this name.
register(FORM, delta_net)
