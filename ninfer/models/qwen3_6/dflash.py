"""DFlash: a block drafter whose last layer sees the whole context and whose drafts are greedy."""

from ninfer.models.config import DflashConfig
from ninfer.models.qwen3_6.block_weights import BlockDrafterWeights, bind_block_drafter
from ninfer.models.qwen3_6.weights import WeightSource


def dflash_windows(config: DflashConfig) -> tuple[int | None, ...]:
    """The window of each layer: all slide but the last."""
    return (*[config.window] * (config.layers - 1), None)


def bind_dflash(source: WeightSource, config: DflashConfig) -> BlockDrafterWeights:
    """Build the view from stored objects; `source` is asked for each object exactly once.

    The drafter runs by `extend_context` and `block_forward`; `greedy_drafts` reads its tokens.
    """
    windows = dflash_windows(config)
    return bind_block_drafter(source, "dflash", config, windows, convolutions=False)
