"""The CUDA form of the matrix products: built, loaded and launched on torch's current stream.

Weights come in fragment order with the split that `slice_groups` names, activations in bfloat16.
Calls can be captured into CUDA graphs once `ready` has run for their weight. On Hopper and later
they are programmatic dependent launches: a kernel requests its first weights while the one before
still runs, and reads nothing else before that one has ended.

Calls on one device share the counters of unfinished sums: they must not overlap on two streams.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch
from cuda.bindings import driver
from torch import Tensor
from torch.nn import functional

from ninfer.errors import UnsupportedError
from ninfer.ops.linear.compiler import Program, binary
from ninfer.ops.linear.fast_plan import (
    FEW,
    WIDE,
    StreamPlan,
    WidePlan,
    shared_limit,
    split_of,
    stream_plan,
    wide_plan,
)
from ninfer.ops.linear.fragment_order import FragmentMatrix, groups_of

# Row tiles that the counters have room for.
_COUNTERS: Final = 1 << 18
# The largest cluster that every card with clusters can place.
_MOST_CLUSTERED: Final = 8
_ALIGNMENT: Final = 16


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loaded kernel and what its launches need to know of the device."""

    function: Any
    device: int
    architecture: int
    multiprocessors: int


@dataclass(frozen=True, slots=True)
class _Call:
    """Arguments of one product, all checked."""

    x: Tensor
    weight: FragmentMatrix
    residual: Tensor | None
    y: Tensor
    gated: bool


def slice_groups(device: torch.device, columns: int) -> int:
    """Groups of a column slice that the fragment order of a weight must have on this device."""
    return split_of(architecture(device), columns).slice_groups


def serves(x: Tensor, weight: object) -> bool:
    """Whether this form computes products of `x` and `weight`: else another tier has to."""
    return (
        x.dtype is torch.bfloat16
        and x.device.type == "cuda"
        and isinstance(weight, FragmentMatrix)
        and weight.slice_groups == slice_groups(x.device, weight.shape[1])
    )


def ready(weight: FragmentMatrix, tokens: Sequence[int] = (8, FEW, 32, WIDE)) -> None:
    """Build and load what calls of up to these token counts need, and wait for the weight itself.

    After this a call compiles, loads and waits for nothing. Raises UnsupportedError when a kernel
    can be neither found nor compiled.
    """
    device = weight.device
    _counters(_index(device))
    for count in tokens:
        plan = _plan(architecture(device), weight, count)
        _kernel(_index(device), plan)
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
            f"{op}: the CUDA form takes bfloat16 rows on a card and a weight in fragment order of "
            f"{slice_groups(x.device, x.shape[1])} groups a slice, got {x.dtype} on {x.device} and "
            f"{getattr(weight, 'slice_groups', type(weight).__name__)}"
        )
    count, rows = x.shape[0], weight.shape[0]
    width = rows // 2 if gated else rows
    y = torch.empty(count, width, dtype=x.dtype, device=x.device)
    x = _aligned(x)
    step = max(count, 1) if count <= FEW else WIDE
    for start in range(0, count, step):
        part = slice(start, start + step)
        kept = None if residual is None else residual[part]
        launch(_Call(x[part], weight, kept, y[part], gated), wide=count > FEW)
    return y


def launch(call: _Call, *, wide: bool, plan: StreamPlan | None = None) -> None:
    """Start one kernel for 1..64 tokens; `plan` replaces the streaming kernel's sizes."""
    count = call.x.shape[0]
    index = _index(call.x.device)
    if wide:
        _launch_wide(call, _wide_plan(architecture(call.x.device), call.weight, count), index)
    else:
        chosen = plan or _plan(architecture(call.x.device), call.weight, count)
        assert isinstance(chosen, StreamPlan)
        _launch_stream(call, chosen, index)


def _launch_stream(call: _Call, plan: StreamPlan, device: int) -> None:
    kernel = _kernel(device, plan)
    tiles, slices = call.weight.tiles, plan.split.slices
    count, shared, cluster = _grid(kernel, plan, tiles)
    is_split = slices > 1 and not cluster
    size = tiles * slices * plan.tile_sum if is_split else 0
    partial = torch.empty(size, dtype=torch.uint8, device=call.x.device)
    blocks = -(-tiles // count) * slices
    values = [*_pointers(call, partial, device), *_sizes(call), tiles, count, int(cluster)]
    values += [int(call.weight.paired), int(call.gated)]
    _start(kernel, blocks, plan.threads, shared, slices if cluster else 1, values)


def _launch_wide(call: _Call, plan: WidePlan, device: int) -> None:
    kernel = _kernel(device, plan)
    weight = call.weight
    groups = groups_of(weight.shape[1])
    work = -(-weight.tiles // plan.block_tiles) * groups
    run = -(-work // kernel.multiprocessors)
    blocks = -(-work // run)
    size = blocks * 2 * plan.block_sum
    partial = torch.empty(size, dtype=torch.uint8, device=call.x.device)
    values = [*_pointers(call, partial, device), *_sizes(call), weight.tiles, weight.slices]
    values += [groups, run, int(weight.paired), int(call.gated)]
    _start(kernel, blocks, plan.threads, plan.shared_bytes, 1, values)


def _pointers(call: _Call, partial: Tensor, device: int) -> list[int | None]:
    """Addresses, in the order of both kernels."""
    residual = None if call.residual is None else call.residual.data_ptr()
    fixed = (call.weight.words, call.x, call.y)
    ends = [partial.data_ptr(), _counters(device).data_ptr()]
    return [*(tensor.data_ptr() for tensor in fixed), residual, *ends]


def _sizes(call: _Call) -> list[int]:
    """Stride of x, tokens, rows and columns: the first integers of both kernels."""
    return [call.x.stride(0), call.x.shape[0], *call.weight.shape]


def _grid(kernel: Kernel, plan: StreamPlan, tiles: int) -> tuple[int, int, bool]:
    """Tiles of a block, its shared memory, and whether slices meet in a cluster.

    Blocks are as many as run at once: a second wave would cost as much as the first.
    """
    slices = plan.split.slices
    count = -(-tiles // max(kernel.multiprocessors // slices, 1))
    if slices == 1 or slices > _MOST_CLUSTERED or kernel.architecture < 90:
        return count, plan.shared_bytes, False
    limit = shared_limit(kernel.architecture)
    if plan.shared_bytes + count * plan.tile_sum > limit:
        return count, plan.shared_bytes, False
    clusters = _clusters(kernel, plan, plan.shared_bytes + count * plan.tile_sum)
    if not clusters:
        return count, plan.shared_bytes, False
    wanted = -(-tiles // clusters)
    shared = plan.shared_bytes + wanted * plan.tile_sum
    if shared > limit:
        return count, plan.shared_bytes, False
    return wanted, shared, True


@cache
def _clusters(kernel: Kernel, plan: StreamPlan, shared: int) -> int:
    """Clusters of the plan's slices that the device holds at once."""
    slices = plan.split.slices
    config = _config(kernel.multiprocessors // slices * slices, plan.threads, shared, slices, 0)
    with torch.cuda.device(kernel.device):
        return int(_checked(driver.cuOccupancyMaxActiveClusters(kernel.function, config)))


def _start(
    kernel: Kernel,
    blocks: int,
    threads: int,
    shared: int,
    cluster: int,
    values: Sequence[int | None],
) -> None:
    """Launch on the current stream of the kernel's device; six addresses come first."""
    stream = torch.cuda.current_stream(kernel.device).cuda_stream
    config = _config(blocks, threads, shared, cluster, stream, dependent=kernel.architecture >= 90)
    types = [ctypes.c_void_p] * 6 + [ctypes.c_int] * (len(values) - 6)
    words = tuple(value or 0 for value in values)
    with torch.cuda.device(kernel.device):
        _checked(driver.cuLaunchKernelEx(config, kernel.function, (words, tuple(types)), 0))


def _config(
    blocks: int, threads: int, shared: int, cluster: int, stream: int, *, dependent: bool = False
) -> Any:
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = blocks, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes = shared
    config.hStream = driver.CUstream(stream)
    kinds = driver.CUlaunchAttributeID
    attributes = []
    if cluster > 1:
        size = driver.CUlaunchAttribute()
        size.id = kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dims = size.value.clusterDim
        dims.x, dims.y, dims.z = cluster, 1, 1
        attributes.append(size)
    if dependent:
        early = driver.CUlaunchAttribute()
        early.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        early.value.programmaticStreamSerializationAllowed = 1
        attributes.append(early)
    config.attrs = attributes
    config.numAttrs = len(attributes)
    return config


def _plan(architecture: int, weight: FragmentMatrix, count: int) -> StreamPlan | WidePlan:
    if count > FEW:
        return _wide_plan(architecture, weight, count)
    return stream_plan(architecture, weight.entry.bits, weight.shape[1], count)


def _wide_plan(architecture: int, weight: FragmentMatrix, count: int) -> WidePlan:
    # A short last part of many tokens runs with the others' sizes.
    return wide_plan(architecture, weight.entry.bits, weight.slice_groups, max(count, FEW + 1))


@cache
def _kernel(device: int, plan: StreamPlan | WidePlan) -> Kernel:
    """The kernel of a plan, built if need be and loaded."""
    properties = torch.cuda.get_device_properties(device)
    number = 10 * properties.major + properties.minor
    stem = "stream" if isinstance(plan, StreamPlan) else "wide"
    code = binary(Program.of(f"{stem}.cu", number, plan.defines))
    with torch.cuda.device(device):
        module = _checked(driver.cuModuleLoadData(code))
        function = _checked(driver.cuModuleGetFunction(module, f"linear_{stem}".encode()))
        # A limit of the function, not of a launch: it must not be lowered by a later one.
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _checked(driver.cuFuncSetAttribute(function, most, shared_limit(number)))
    return Kernel(function, device, number, properties.multi_processor_count)


@cache
def _counters(device: int) -> Tensor:
    """Zeros that every kernel leaves as zeros; made before any capture, outside its memory."""
    assert not torch.cuda.is_current_stream_capturing(), "call ready() before a capture"
    return torch.zeros(_COUNTERS, dtype=torch.int32, device=f"cuda:{device}")


def architecture(device: torch.device) -> int:
    """Ten times the compute capability of a card; 0 for other devices."""
    return _architecture(_index(device)) if device.type == "cuda" else 0


@cache
def _architecture(device: int) -> int:
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


def _aligned(x: Tensor) -> Tensor:
    """The rows so that each can be read in units of 16 bytes; a copy only where it must be."""
    units = _ALIGNMENT // x.element_size()
    if x.shape[1] % units == 0 and x.stride(0) % units == 0 and x.data_ptr() % _ALIGNMENT == 0:
        return x
    return functional.pad(x, (0, -x.shape[1] % units)).contiguous()


def _checked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise UnsupportedError(f"CUDA driver: {status.name}")
    return values[0] if values else None
