"""From --prefix-... to the runtime's prefix options, and all that a kept prompt depends on."""

import platform
from pathlib import Path

import torch

from ninfer.artifact import Identity
from ninfer.engine.options import PREFIX_DISK_MIB, EngineOptions
from ninfer.runtime import RuntimeConfig
from ninfer.runtime.prefix_keys import prefix_salt
from ninfer.runtime.prefix_reuse import PrefixOptions
from ninfer.version import VERSION


def prefix_options(
    options: EngineOptions,
    sizes: RuntimeConfig,
    *,
    artifact: Identity | None,
    fingerprint: str,
    backend: str,
    decoded: bool,
) -> PrefixOptions | None:
    """What the runtime keeps of prompts; None when --prefix-cache-mib is 0.

    `fingerprint` tells artifacts of one identity apart; `decoded` says how weights are resident.
    """
    if not options.prefix_cache_mib:
        return None
    # Whatever may change a bit of a page or a state: what differs here is never reused.
    salt: dict[str, object] = {
        "artifact": str(artifact),
        "fingerprint": fingerprint,
        "kv": sizes.kv_format,
        "dtype": str(sizes.dtype),
        "state": str(sizes.state_dtype),
        "weights": "decoded" if decoded else "packed",
        "drafter": options.spec,
        "yarn": float(options.yarn_factor or 1),
        "decoded": options.reuse_decoded,
        "backend": backend,
        "device": _device_name(sizes.device),
        "threads": torch.get_num_threads() if sizes.device.type == "cpu" else 0,
        "torch": torch.__version__,
        "ninfer": VERSION,
    }
    disk = PREFIX_DISK_MIB if options.prefix_disk_mib is None else options.prefix_disk_mib
    return PrefixOptions(
        state_bytes=options.prefix_cache_mib << 20,
        salt=prefix_salt(salt),
        host_bytes=options.prefix_host_mib << 20,
        folder=options.prefix_dir,
        disk_bytes=disk << 20,
        reuse_decoded=options.reuse_decoded,
    )


def _device_name(device: torch.device) -> str:
    """The card's name, or what the system says of the processor: vector units decide bits."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name} {torch.backends.cpu.get_cpu_capability()}"
