"""The CUDA form of the matrix products: sizes, launches and the three endings of the contract.

Weights come in fragment order with the split that `slice_groups` names, activations in bfloat16.
Calls can be captured into CUDA graphs once `ready` has run for their weight. On Hopper and later
they are programmatic dependent launches: a kernel requests its first weights while the one before
still runs, and reads nothing else before that one has ended.

Calls on one device share the counters of unfinished sums: they must not overlap on two streams.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.errors import UnsupportedError
from ninfer.formats import numeric_format
from ninfer.ops.linear.compiler import Program
from ninfer.ops.linear.fast_plan import (
    FEW,
    WIDE,
    StreamPlan,
    shared_limit,
    split_of,
    stream_plan,
)
from ninfer.ops.linear.fragment_order import FragmentMatrix, groups_of
from ninfer.ops.linear.launcher import (
    Kernel,
    Launch,
    architecture,
    kernel,
    resident_clusters,
    start,
)
from ninfer.ops.linear.wide_plan import WarpgroupPlan, WidePlan, many_plan

# Row tiles that the counters have room for.
_COUNTERS: Final = 1 << 18
_ALIGNMENT: Final = 16
_ARRANGING: Final = 256  # threads of a block

Plan = StreamPlan | WidePlan | WarpgroupPlan
_STEMS: Final = {StreamPlan: "stream", WidePlan: "wide", WarpgroupPlan: "warpgroup"}
_NAMES: Final = {
    "stream.cu": "linear_stream",
    "wide.cu": "linear_wide",
    "warpgroup.cu": "linear_warpgroup",
    "arrange.cu": "arrange_activations",
}


@dataclass(frozen=True, slots=True)
class Call:
    """Checked arguments of one launch: 1..64 rows x, and y for them to be written to."""

    x: Tensor
    weight: FragmentMatrix
    y: Tensor
    residual: Tensor | None = None
    gated: bool = False
    dependent: bool = True


def slice_groups(device: torch.device, form: str, columns: int) -> int:
    """Groups of a column slice that the fragment order of a weight must have on this device."""
    bits = numeric_format(form).bits
    return split_of(architecture(_index(device)), bits, columns).slice_groups


def serves(x: Tensor, weight: object) -> bool:
    """Whether this form computes products of `x` and `weight`: else another tier has to."""
    return (
        x.dtype is torch.bfloat16
        and x.device.type == "cuda"
        and isinstance(weight, FragmentMatrix)
        and weight.slice_groups == slice_groups(x.device, weight.format, weight.shape[1])
        and weight.tiles <= _COUNTERS
    )


def ready(weight: FragmentMatrix, tokens: Sequence[int] = (8, FEW, 32, WIDE)) -> None:
    """Build and load what calls of up to these token counts need, and wait for the weight itself.

    After this a call compiles, loads and waits for nothing. Raises UnsupportedError when a kernel
    can be neither found nor compiled.
    """
    device = _index(weight.device)
    counters(device)
    for count in tokens:
        _loaded(device, _plan(architecture(device), weight, count))
    # A first launch requests weights before the kernel that wrote them has to be over.
    torch.cuda.synchronize(device)


def linear(x: Tensor, weight: FragmentMatrix) -> Tensor:
    """See the contract."""
    return _product("linear", x, weight)


def linear_add(x: Tensor, weight: FragmentMatrix, residual: Tensor) -> Tensor:
    """See the contract."""
    return _product("linear_add", x, weight, residual=residual.contiguous())


def linear_swiglu(x: Tensor, gate_up: FragmentMatrix) -> Tensor:
    """See the contract."""
    if not gate_up.paired:
        raise UnsupportedError("linear_swiglu: gate_up in fragment order must have paired rows")
    return _product("linear_swiglu", x, gate_up, gated=True)


def _product(
    op: str,
    x: Tensor,
    weight: FragmentMatrix,
    *,
    residual: Tensor | None = None,
    gated: bool = False,
) -> Tensor:
    if not serves(x, weight):
        raise UnsupportedError(
            f"{op}: the CUDA form takes bfloat16 rows on a card and a weight in fragment order cut "
            f"for it, got {x.dtype} on {x.device} and {type(weight).__name__}"
        )
    count, rows = x.shape[0], weight.shape[0]
    y = torch.empty(count, rows // 2 if gated else rows, dtype=x.dtype, device=x.device)
    x = _aligned(x)
    step = max(count, 1) if count <= FEW else WIDE
    for begin in range(0, count, step):
        part = slice(begin, begin + step)
        kept = None if residual is None else residual[part]
        launch(Call(x[part], weight, y[part], kept, gated), wide=count > FEW)
    return y


def launch(call: Call, *, wide: bool, plan: Plan | None = None) -> None:
    """Start what computes up to 16 rows, or with `wide` up to 64.

    `plan` replaces the sizes, for measurements of others; it must fit the weight's fragment order.
    """
    device = _index(call.x.device)
    count, number = call.x.shape[0], architecture(device)
    chosen = plan or _plan(number, call.weight, max(count, FEW + 1) if wide else count)
    if isinstance(chosen, StreamPlan):
        _launch_stream(call, chosen, device)
    elif isinstance(chosen, WidePlan):
        _launch_wide(call, chosen, device)
    else:
        _launch_warpgroups(call, chosen, device)


def _launch_stream(call: Call, plan: StreamPlan, device: int) -> None:
    (found,) = _loaded(device, plan)
    tiles, slices = call.weight.tiles, plan.split.slices
    count, shared, is_clustered = _grid(found, plan, tiles)
    cluster = slices if is_clustered else 1
    in_memory = tiles * slices * plan.tile_sum if slices > cluster else 0
    blocks = -(-tiles // count) * slices
    sizes = [*_sizes(call), tiles, count, int(is_clustered), *_ending(call)]
    how = Launch(blocks, plan.threads, shared, cluster, call.dependent)
    start(found, how, _addresses(call, in_memory, device), sizes)


def _launch_wide(call: Call, plan: WidePlan, device: int) -> None:
    (found,) = _loaded(device, plan)
    weight = call.weight
    groups = groups_of(weight.shape[1])
    blocks, run = _runs(found, plan, weight, groups)
    form = [weight.tiles, weight.slices, weight.slice_groups]
    sizes = [*_sizes(call), *form, groups, run, *_ending(call)]
    how = Launch(blocks, plan.threads, plan.shared_bytes, dependent=call.dependent)
    start(found, how, _addresses(call, blocks * 2 * plan.block_sum, device), sizes)


def _launch_warpgroups(call: Call, plan: WarpgroupPlan, device: int) -> None:
    arranging, found = _loaded(device, plan)
    weight = call.weight
    units = -(-groups_of(weight.shape[1]) // plan.stage_groups)
    image = torch.empty(units * plan.unit_bytes, dtype=torch.uint8, device=call.x.device)
    how = Launch(-(-image.nbytes // (16 * _ARRANGING)), _ARRANGING, 0, dependent=call.dependent)
    stride, count, rows, columns = _sizes(call)
    sizes = [stride, count, columns, units * plan.stage_groups]
    start(arranging, how, [call.x.data_ptr(), image.data_ptr()], sizes)
    blocks, run = _runs(found, plan, weight, units)
    form = [weight.tiles, weight.slices, weight.slice_groups]
    how = Launch(blocks, plan.threads, plan.shared_bytes, dependent=call.dependent)
    addresses = _addresses(call, blocks * 2 * plan.block_sum, device)
    addresses[1] = image.data_ptr()
    start(found, how, addresses, [count, rows, *form, units, run, *_ending(call)])


def _runs(
    found: Kernel, plan: WidePlan | WarpgroupPlan, weight: FragmentMatrix, units: int
) -> tuple[int, int]:
    """Blocks and the length of their runs through (row block, unit) pairs."""
    work = -(-weight.tiles // plan.block_tiles) * units
    run = -(-work // found.multiprocessors)
    return -(-work // run), run


def _addresses(call: Call, partial_bytes: int, device: int) -> list[int | None]:
    """The address parameters of a product, with a new buffer for partial sums.

    The buffer may be given out again at once: whoever gets it runs behind this kernel.
    """
    partial = torch.empty(partial_bytes, dtype=torch.uint8, device=call.x.device)
    residual = None if call.residual is None else call.residual.data_ptr()
    fixed = (call.weight.words.data_ptr(), call.x.data_ptr(), call.y.data_ptr())
    return [*fixed, residual, partial.data_ptr(), counters(device).data_ptr()]


def _sizes(call: Call) -> list[int]:
    """Stride of x, tokens, rows and columns: the first integers of the kernels that read x."""
    return [call.x.stride(0), call.x.shape[0], *call.weight.shape]


def _ending(call: Call) -> list[int]:
    """The last integers of every product."""
    return [int(call.weight.paired), int(call.gated)]


def _grid(found: Kernel, plan: StreamPlan, tiles: int) -> tuple[int, int, bool]:
    """Tiles of a block, its shared memory, and whether slices meet in a cluster.

    Blocks are as many as run at once: a second wave would cost as much as the first.
    """
    slices = plan.split.slices
    count = -(-tiles // max(found.multiprocessors // slices, 1))
    alone = (count, plan.shared_bytes, False)
    limit = shared_limit(found.architecture)
    shared = plan.shared_bytes + count * plan.tile_sum
    if slices == 1 or not plan.clusters or found.architecture < 90 or shared > limit:
        return alone
    most = found.multiprocessors // slices * slices
    clusters = resident_clusters(found, Launch(most, plan.threads, shared, slices, dependent=False))
    if not clusters:
        return alone
    count = -(-tiles // clusters)
    shared = plan.shared_bytes + count * plan.tile_sum
    return (count, shared, True) if shared <= limit else alone


def _plan(number: int, weight: FragmentMatrix, count: int) -> Plan:
    if count > FEW:
        return many_plan(number, weight.entry.bits, weight.slice_groups, count)
    return stream_plan(number, weight.entry.bits, weight.shape[1], count)


def programs(number: int, plan: Plan) -> list[Program]:
    """What a call with these sizes starts on an architecture; the product itself is the last."""
    product = Program.of(f"{_STEMS[type(plan)]}.cu", number, plan.defines)
    if not isinstance(plan, WarpgroupPlan):
        return [product]
    return [Program.of("arrange.cu", number, {"TOKENS": plan.tokens}), product]


def _loaded(device: int, plan: Plan) -> list[Kernel]:
    return [_kernel(device, program) for program in programs(architecture(device), plan)]


def _kernel(device: int, program: Program) -> Kernel:
    return kernel(device, program.source, _NAMES[program.source], program.defines)


@cache
def counters(device: int) -> Tensor:
    """Zeros that every kernel leaves as zeros; made before any capture, outside its memory."""
    assert not torch.cuda.is_current_stream_capturing(), "call ready() before a capture"
    return torch.zeros(_COUNTERS, dtype=torch.int32, device=f"cuda:{device}")


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


def _aligned(x: Tensor) -> Tensor:
    """The rows so that each can be read in units of 16 bytes; a copy only where it must be."""
    units = _ALIGNMENT // x.element_size()
    if x.shape[1] % units == 0 and x.stride(0) % units == 0 and x.data_ptr() % _ALIGNMENT == 0:
        return x
    return functional.pad(x, (0, -x.shape[1] % units)).contiguous()
