"""DFlash: a block drafter whose last layer sees the whole context and whose drafts are greedy."""

from ninfer.models.config import DflashConfig, ModelConfig
from ninfer.models.parameters import ParameterTable
from ninfer.models.qwen3_6.block_weights import BlockDrafterWeights, bind_block_drafter
from ninfer.models.qwen3_6.recipe import Recipe
from ninfer.models.qwen3_6.weights import WeightSource, component_rows


def dflash_windows(config: DflashConfig) -> tuple[int | None, ...]:
    """The window of each layer: all slide but the last."""
    return (*[config.window] * (config.layers - 1), None)


def bind_dflash(
    source: WeightSource, config: ModelConfig, places: Recipe | ParameterTable
) -> BlockDrafterWeights:
    """Build the view from stored objects, each asked for exactly once; see `bind_text`.

    The drafter runs by `extend_context` and `block_forward`; `greedy_drafts` reads its tokens.
    """
    assert config.dflash is not None
    rows = component_rows(source, config, places, "dflash/")
    windows = dflash_windows(config.dflash)
    return bind_block_drafter(rows, "dflash", config.dflash, windows, convolutions=False)
