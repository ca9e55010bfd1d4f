"""The registered checkpoints as data: dense Qwen3.6 and Qwen3.8 27B, sparse Qwen3.6 35B-A3B."""

from dataclasses import replace
from typing import Final

from ninfer.models.config import (
    AttentionSizes,
    Dflash2Config,
    DflashConfig,
    GdnSizes,
    ModelConfig,
    MoeSizes,
    TextConfig,
    VisionConfig,
)

VOCAB_ROWS: Final = 248_320
# Ids above this have rows in the embedding and the head but no token in the tokenizer.
ADDRESSABLE: Final = 248_077
CONTEXT: Final = 262_144
DRAFT_HEAD_ROWS: Final = 131_072


def _vision(output: int) -> VisionConfig:
    return VisionConfig(
        depth=27,
        hidden=1152,
        mlp_width=4304,
        heads=16,
        patch=16,
        temporal_patch=2,
        merge=2,
        positions=48 * 48,
        output=output,
    )


DENSE_27B: Final = ModelConfig(
    text=TextConfig(
        hidden=5120,
        layers=64,
        attention_interval=4,
        mlp_width=17_408,
        vocab_rows=VOCAB_ROWS,
        addressable=ADDRESSABLE,
        eps=1e-6,
        context=CONTEXT,
        attention=AttentionSizes(24, 4, 256, 64, 1e7),
        gdn=GdnSizes(16, 48, 128, 128, 4),
    ),
    mtp=True,
    draft_head_rows=DRAFT_HEAD_ROWS,
    vision=_vision(5120),
)

DENSE_38_27B: Final = replace(DENSE_27B, generation="qwen3.8")

# The drafter of Qwen3.8-27B; container v2 files were published without it.
DFLASH2_27B: Final = Dflash2Config(
    layers=5,
    mlp_width=17_408,
    query_heads=32,
    kv_heads=8,
    head_dim=128,
    target_layers=(5, 19, 33, 47, 61),
    window=2048,
    mask_id=248_070,
    conv_taps=2,
    conv_group=16,
    selector_rank=256,
    selector_top_k=16,
)

MOE_35B: Final = ModelConfig(
    text=TextConfig(
        hidden=2048,
        layers=40,
        attention_interval=4,
        mlp_width=0,
        vocab_rows=VOCAB_ROWS,
        addressable=ADDRESSABLE,
        eps=1e-6,
        context=CONTEXT,
        attention=AttentionSizes(16, 2, 256, 64, 1e7),
        gdn=GdnSizes(16, 32, 128, 128, 4),
        moe=MoeSizes(experts=256, top_k=8, expert_width=512, shared_width=512),
    ),
    mtp=True,
    draft_head_rows=DRAFT_HEAD_ROWS,
    vision=_vision(2048),
    dflash=DflashConfig(
        layers=6,
        mlp_width=6144,
        query_heads=32,
        kv_heads=8,
        head_dim=128,
        target_layers=(1, 6, 11, 16, 22, 27, 32, 37),
        window=4096,
        # A row of the target embedding that is not an encodable token.
        mask_id=248_077,
        block=16,
    ),
)
