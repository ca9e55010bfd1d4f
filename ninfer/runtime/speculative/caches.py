"""KV pages of drafter layers: the same page indices as the decoder's, in tensors of their own."""

from typing import Literal

from ninfer.errors import UsageError
from ninfer.models.config import ModelConfig
from ninfer.models.forward_batch import KvCacheSpec
from ninfer.models.qwen3_6.block_weights import block_cache_spec
from ninfer.models.qwen3_6.mtp import mtp_cache_spec
from ninfer.ops.tensors import PagedKV
from ninfer.runtime.caches import paged_kv
from ninfer.runtime.config import RuntimeConfig

DrafterKind = Literal["mtp", "dflash", "dflash2"]


def drafter_spec(kind: DrafterKind, config: ModelConfig) -> KvCacheSpec:
    """Sizes of a drafter's layers. Raises UsageError for a drafter that the model does not have."""
    if kind == "mtp":
        if config.mtp:
            return mtp_cache_spec(config.text)
    else:
        sizes = config.dflash if kind == "dflash" else config.dflash2
        if sizes is not None:
            return block_cache_spec(sizes)
    raise UsageError(f"--spec {kind}: this artifact has no such drafter; choose another or none")


def drafter_caches(kind: DrafterKind, config: ModelConfig, runtime: RuntimeConfig) -> list[PagedKV]:
    """Zeroed caches, one per layer of the drafter, that live as long as the runtime.

    Raises UsageError for a drafter that the model does not have.
    """
    spec = drafter_spec(kind, config)
    return [paged_kv(runtime, spec.heads, spec.head_dim) for _ in range(spec.layers)]
