"""Options and hardware to resolved sizes: device, number formats, residency, capacity."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from ninfer.engine.options import EngineOptions
from ninfer.engine.plan import has_rounds, plan_engine, refusal
from ninfer.engine.residency import Residency
from ninfer.errors import UsageError
from ninfer.log import get_logger
from ninfer.ops.dispatch import TRITON
from ninfer.runtime import RoundOptions, RuntimeConfig
from ninfer.runtime.memory_plan import ModelSizes

log = get_logger(__name__)

STATE_DTYPES: Final = {"fp32": torch.float32, "bf16": torch.bfloat16}


def resolve_device(name: str) -> torch.device:
    """The device of `--device`. Raises UsageError when that CUDA device does not exist."""
    count = torch.cuda.device_count()
    if name == "cpu" or (name == "auto" and count == 0):
        return torch.device("cpu")
    index = 0 if name == "auto" else int(name)
    if index >= count:
        raise UsageError(f"--device {name}: this machine has {count} CUDA devices; use cpu or auto")
    return torch.device("cuda", index)


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """Number format of activations: bf16 on CUDA and fp32 on the CPU unless asked otherwise."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"bf16": torch.bfloat16, "fp32": torch.float32}[name]


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the options come to on this machine for one model."""

    residency: Residency
    runtime: RuntimeConfig


def resolve(options: EngineOptions, model: ModelSizes) -> Resolved:
    """Sizes from the memory that is free now; call it before weights are loaded.

    Raises UsageError naming the option that does not suit the model, or by how much the options do
    not fit and what would. A capacity that gave way is reported in the log.
    """
    device = resolve_device(options.device)
    dtype = resolve_dtype(options.activations, device)
    plan = plan_engine(options, model, free_bytes(device), dtype.itemsize)
    if not plan.memory.fits:
        raise UsageError(refusal(plan, model))
    if plan.announcement is not None:
        log.warning("%s", plan.announcement)
    demand = plan.demand
    return Resolved(
        Residency(device, dtype, demand.decoded),
        RuntimeConfig(
            device=device,
            dtype=dtype,
            kv_format=demand.kv_format,
            max_context=demand.max_context,
            pages=plan.memory.pages,
            state_slots=demand.sequences,
            prefill_chunk=demand.prefill_chunk,
            window=demand.window,
            state_dtype=STATE_DTYPES[options.state_dtype],
            max_pending=options.max_pending_requests,
            pending_timeout=options.pending_timeout_ms / 1000,
            rounds=resolve_rounds(options, device),
        ),
    )


def resolve_rounds(options: EngineOptions, device: torch.device) -> RoundOptions | None:
    """How decode rounds run on a device; None where every step is launched from the host.

    Reference ops wait for their device and cannot be captured; with no graph to replay there is
    nothing to be ahead of.
    """
    if not has_rounds(options):
        return None
    captures = device.type == "cuda" and options.backend == TRITON
    return RoundOptions(ahead=int(captures), captures=captures)


def free_bytes(device: torch.device) -> int:
    """Bytes that new allocations on a device can have now."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return _available_memory()


def _available_memory() -> int:
    """Bytes that new allocations can have: what Linux calls available, else all of the memory."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    (kibibytes,) = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(kibibytes) * 1024
