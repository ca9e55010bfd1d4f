"""CUDA kernels loaded on a device and started on torch's current stream, by raw addresses."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from cuda.bindings import driver

from ninfer.errors import UnsupportedError
from ninfer.ops.linear.compiler import Program, binary
from ninfer.ops.linear.fast_plan import shared_limit


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loaded kernel and what its launches need to know of the device."""

    function: Any
    device: int
    architecture: int
    multiprocessors: int


@dataclass(frozen=True, slots=True)
class Launch:
    """How a kernel is started: blocks, threads and shared bytes of each, blocks of a cluster.

    A `dependent` launch may begin while the kernel before it still runs (Hopper and later).
    """

    blocks: int
    threads: int
    shared_bytes: int
    cluster: int = 1
    dependent: bool = True


@cache
def kernel(device: int, source: str, name: str, defines: tuple[tuple[str, int], ...]) -> Kernel:
    """A kernel of a source with these constants, built if need be and loaded.

    Raises UnsupportedError when it can be neither found nor compiled.
    """
    number = architecture(device)
    code = binary(Program(source, number, tuple(sorted(defines))))
    with torch.cuda.device(device):
        module = _checked(driver.cuModuleLoadData(code))
        function = _checked(driver.cuModuleGetFunction(module, name.encode()))
        # A limit of the function, not of a launch: it must not be lowered by a later one.
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _checked(driver.cuFuncSetAttribute(function, most, shared_limit(number)))
    count = torch.cuda.get_device_properties(device).multi_processor_count
    return Kernel(function, device, number, count)


def allow_large_clusters(chosen: Kernel) -> None:
    """Let a kernel be launched in clusters of up to 16 blocks, where the card has them."""
    leave = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    with torch.cuda.device(chosen.device):
        _checked(driver.cuFuncSetAttribute(chosen.function, leave, 1))


@cache
def architecture(device: int) -> int:
    """Ten times the compute capability of a card."""
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


@cache
def resident_clusters(chosen: Kernel, launch: Launch) -> int:
    """How many clusters of a launch the device holds at once."""
    with torch.cuda.device(chosen.device):
        config = _config(chosen, launch, 0)
        return int(_checked(driver.cuOccupancyMaxActiveClusters(chosen.function, config)))


def start(
    chosen: Kernel, launch: Launch, addresses: Sequence[int | None], sizes: Sequence[int]
) -> None:
    """Start a kernel whose parameters are addresses (None is null) and then 32-bit integers."""
    values = (*(address or 0 for address in addresses), *sizes)
    types = (ctypes.c_void_p,) * len(addresses) + (ctypes.c_int,) * len(sizes)
    with torch.cuda.device(chosen.device):
        stream = torch.cuda.current_stream(chosen.device).cuda_stream
        config = _config(chosen, launch, stream)
        _checked(driver.cuLaunchKernelEx(config, chosen.function, (values, types), 0))


def driver_version() -> str:
    """The CUDA version that the driver supports."""
    version = int(_checked(driver.cuDriverGetVersion()))
    return f"{version // 1000}.{version % 1000 // 10}"


def _config(chosen: Kernel, launch: Launch, stream: int) -> Any:
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.blocks, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.threads, 1, 1
    config.sharedMemBytes = launch.shared_bytes
    config.hStream = driver.CUstream(stream)
    kinds = driver.CUlaunchAttributeID
    attributes = []
    if launch.cluster > 1:
        size = driver.CUlaunchAttribute()
        size.id = kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        size.value.clusterDim.x = launch.cluster
        size.value.clusterDim.y = size.value.clusterDim.z = 1
        attributes.append(size)
    if launch.dependent and chosen.architecture >= 90:
        early = driver.CUlaunchAttribute()
        early.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        early.value.programmaticStreamSerializationAllowed = 1
        attributes.append(early)
    config.attrs = attributes
    config.numAttrs = len(attributes)
    return config


def _checked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise UnsupportedError(f"CUDA driver: {status.name}")
    return values[0] if values else None
