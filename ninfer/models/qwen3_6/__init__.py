"""Qwen3.6 family: dense and MoE hybrid decoders."""

from typing import TYPE_CHECKING

from ninfer.lazy import lazy_exports

if TYPE_CHECKING:
    from ninfer.models.qwen3_6.block_drafter import (
        ContextRows,
        DraftBlock,
        block_forward,
        draft_block,
        even_block,
        extend_context,
    )
    from ninfer.models.qwen3_6.decoder import decode, logits
    from ninfer.models.qwen3_6.dflash import bind_dflash
    from ninfer.models.qwen3_6.dflash2 import SparseDrafts, bind_dflash2, select_drafts
    from ninfer.models.qwen3_6.inventory import FRONTEND_RESOURCES, inventory
    from ninfer.models.qwen3_6.mtp import bind_mtp, mtp_forward, shifted_batch
    from ninfer.models.qwen3_6.presets import sampling_preset
    from ninfer.models.qwen3_6.proposal import (
        ProposalHead,
        bind_draft_head,
        full_head,
        greedy_drafts,
    )
    from ninfer.models.qwen3_6.recipe import recipe_for
    from ninfer.models.qwen3_6.vision import encode_media
    from ninfer.models.qwen3_6.vision_weights import VisionWeights, bind_vision
    from ninfer.models.qwen3_6.weights import TextWeights, WeightSource, bind_text

__all__ = [
    "FRONTEND_RESOURCES",
    "ContextRows",
    "DraftBlock",
    "ProposalHead",
    "SparseDrafts",
    "TextWeights",
    "VisionWeights",
    "WeightSource",
    "bind_dflash",
    "bind_dflash2",
    "bind_draft_head",
    "bind_mtp",
    "bind_text",
    "bind_vision",
    "block_forward",
    "decode",
    "draft_block",
    "encode_media",
    "even_block",
    "extend_context",
    "full_head",
    "greedy_drafts",
    "inventory",
    "logits",
    "mtp_forward",
    "recipe_for",
    "sampling_preset",
    "select_drafts",
    "shifted_batch",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "FRONTEND_RESOURCES": "ninfer.models.qwen3_6.inventory",
        "ContextRows": "ninfer.models.qwen3_6.block_drafter",
        "DraftBlock": "ninfer.models.qwen3_6.block_drafter",
        "ProposalHead": "ninfer.models.qwen3_6.proposal",
        "SparseDrafts": "ninfer.models.qwen3_6.dflash2",
        "TextWeights": "ninfer.models.qwen3_6.weights",
        "VisionWeights": "ninfer.models.qwen3_6.vision_weights",
        "WeightSource": "ninfer.models.qwen3_6.weights",
        "bind_dflash": "ninfer.models.qwen3_6.dflash",
        "bind_dflash2": "ninfer.models.qwen3_6.dflash2",
        "bind_draft_head": "ninfer.models.qwen3_6.proposal",
        "bind_mtp": "ninfer.models.qwen3_6.mtp",
        "bind_text": "ninfer.models.qwen3_6.weights",
        "bind_vision": "ninfer.models.qwen3_6.vision_weights",
        "block_forward": "ninfer.models.qwen3_6.block_drafter",
        "decode": "ninfer.models.qwen3_6.decoder",
        "draft_block": "ninfer.models.qwen3_6.block_drafter",
        "encode_media": "ninfer.models.qwen3_6.vision",
        "even_block": "ninfer.models.qwen3_6.block_drafter",
        "extend_context": "ninfer.models.qwen3_6.block_drafter",
        "full_head": "ninfer.models.qwen3_6.proposal",
        "greedy_drafts": "ninfer.models.qwen3_6.proposal",
        "inventory": "ninfer.models.qwen3_6.inventory",
        "logits": "ninfer.models.qwen3_6.decoder",
        "mtp_forward": "ninfer.models.qwen3_6.mtp",
        "recipe_for": "ninfer.models.qwen3_6.recipe",
        "sampling_preset": "ninfer.models.qwen3_6.presets",
        "select_drafts": "ninfer.models.qwen3_6.dflash2",
        "shifted_batch": "ninfer.models.qwen3_6.mtp",
    },
)
