"""Options and hardware to resolved sizes: device, number formats, residency, capacity."""

import os
from pathlib import Path

import torch

from ninfer.engine.options import EngineOptions
from ninfer.engine.residency import Residency
from ninfer.errors import UsageError
from ninfer.formats.registry import kv_format
from ninfer.models import ModelConfig, cache_spec
from ninfer.models.config import TextConfig, VisionConfig
from ninfer.runtime import PAGE_SIZE, RuntimeConfig, pages_for


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


def resolve_residency(options: EngineOptions, config: ModelConfig) -> Residency:
    """Where weights live and whether they are decoded once at load.

    `auto` decodes when the decoded weights take at most half of the memory that is free, since
    the reference ops otherwise decode each matrix again in every pass.
    """
    device = resolve_device(options.device)
    dtype = resolve_dtype(options.activations, device)
    if options.weights != "auto":
        return Residency(device, dtype, options.weights == "decoded")
    parameters = parameter_count(config.text)
    if options.vision and config.vision:
        parameters += vision_parameter_count(config.vision)
    needed = parameters * torch.float32.itemsize
    return Residency(device, dtype, needed <= _free_bytes(device) // 2)


def _free_bytes(device: torch.device) -> int:
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


def parameter_count(text: TextConfig) -> int:
    """Parameters of the matrices of the text decoder, embedding and head included."""
    attention, gdn = text.attention, text.gdn
    full = 3 * attention.query_width + 2 * attention.kv_width
    linear = 2 * gdn.key_width + 3 * gdn.value_width + 2 * gdn.value_heads
    mixers = len(text.attention_layers) * full + len(text.gdn_layers) * linear
    width = 3 * text.mlp_width
    if text.moe:
        moe = text.moe
        width = moe.experts * 3 * moe.expert_width + 3 * moe.shared_width + moe.experts + 1
    return text.hidden * (mixers + text.layers * width + 2 * text.vocab_rows)


def vision_parameter_count(vision: VisionConfig) -> int:
    """Parameters of the matrices of the vision tower and its merger."""
    block = 4 * vision.hidden + 2 * vision.mlp_width
    stem = vision.patch_row + vision.positions
    merger = vision.merge_width * (vision.merge_width + vision.output)
    return vision.hidden * (vision.depth * block + stem) + merger


def resolve_runtime(
    options: EngineOptions, config: ModelConfig, residency: Residency
) -> RuntimeConfig:
    """Sizes for one running sequence. Raises UsageError naming the option that does not fit."""
    native = config.text.context
    if options.max_context > native:
        raise UsageError(f"--max-context {options.max_context}: the model's limit is {native}")
    pages = pages_for(options.max_context)
    if options.kv_capacity is not None and pages_for(options.kv_capacity) > pages:
        raise UsageError(
            f"--kv-capacity {options.kv_capacity}: one sequence can use at most "
            f"{pages * PAGE_SIZE} tokens with --max-context {options.max_context}"
        )
    _check_memory(options, config, residency, pages)
    return RuntimeConfig(
        device=residency.device,
        dtype=residency.dtype,
        kv_format=options.kv_dtype,
        max_context=options.max_context,
        pages=pages,
        state_slots=1,
        prefill_chunk=options.prefill_chunk,
    )


def _check_memory(
    options: EngineOptions, config: ModelConfig, residency: Residency, pages: int
) -> None:
    """Refuse caches that cannot fit, before any weight is loaded."""
    spec = cache_spec(config)
    per_token = kv_format(options.kv_dtype).bytes_per_token(spec.kv.heads, spec.kv.head_dim)
    kv = spec.kv.layers * per_token * pages * PAGE_SIZE
    needed = kv + spec.state.bytes_per_slot(residency.dtype.itemsize)
    free = _free_bytes(residency.device)
    if needed > free:
        raise UsageError(
            f"--max-context {options.max_context}: the caches take {needed:,} bytes and "
            f"{free:,} are free on {residency.device}; lower it by {needed - free:,} bytes or take "
            "--kv-dtype int8"
        )
