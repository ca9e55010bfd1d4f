"""All input cases of all ops, family by family."""

from typing import Final

from ninfer.ops.attention.cases import CASES as ATTENTION
from ninfer.ops.block_attention.cases import CASES as BLOCK_ATTENTION
from ninfer.ops.case import Case
from ninfer.ops.conv.cases import CASES as CONV
from ninfer.ops.delta_net.cases import CASES as DELTA_NET
from ninfer.ops.drafts.cases import CASES as DRAFTS
from ninfer.ops.dynamic_conv.cases import CASES as DYNAMIC_CONV
from ninfer.ops.elementwise.cases import CASES as ELEMENTWISE
from ninfer.ops.embedding.cases import CASES as EMBEDDING
from ninfer.ops.gdn.cases import CASES as GDN
from ninfer.ops.kv_cache.cases import CASES as KV_CACHE
from ninfer.ops.linear.cases import CASES as LINEAR
from ninfer.ops.moe.cases import CASES as MOE
from ninfer.ops.norm.cases import CASES as NORM
from ninfer.ops.rope.cases import CASES as ROPE
from ninfer.ops.sampling.cases import CASES as SAMPLING
from ninfer.ops.selector.cases import CASES as SELECTOR
from ninfer.ops.vision.cases import CASES as VISION

ALL_CASES: Final[tuple[Case, ...]] = (
    *NORM,
    *ELEMENTWISE,
    *EMBEDDING,
    *ROPE,
    *LINEAR,
    *KV_CACHE,
    *ATTENTION,
    *BLOCK_ATTENTION,
    *CONV,
    *DYNAMIC_CONV,
    *GDN,
    *DELTA_NET,
    *MOE,
    *SAMPLING,
    *VISION,
    *SELECTOR,
    *DRAFTS,
)
