"""The CUDA form of a draw: one launch, a cluster of blocks for each row, on Hopper and later.

Results are those of the portable form's five launches: the same weights, cuts and order. Calls can
be captured into CUDA graphs once `ready` has run.
"""

from functools import cache
from typing import Final

import torch
from torch import Tensor

from ninfer.errors import UnsupportedError
from ninfer.ops.linear.compiler import Program
from ninfer.ops.linear.fast_plan import shared_limit
from ninfer.ops.linear.launcher import (
    Kernel,
    Launch,
    allow_large_clusters,
    architecture,
    kernel,
    start,
)
from ninfer.ops.sampling.fast_plan import (
    ARCHITECTURES,
    FEW_ROWS,
    MOST_IDS,
    NARROW,
    DrawPlan,
    draw_plan,
)
from ninfer.ops.sampling.five_launches import Rules, Settings
from ninfer.ops.tensors import AllowedTokens, DrawSettings, TokenBias, TokenPenalties

_SOURCE: Final = "sampling/draw.cu"
_NAME: Final = "draw_tokens"
_TYPES: Final = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}


def sample(
    logits: Tensor,
    *,
    limit: int,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    u: Tensor,
) -> Tensor:
    """See the contract. Raises UnsupportedError for what `serves` does not take."""
    given = (x.to(logits.device) for x in (temperature, top_k, top_p, min_p, u))
    return drawn("sample", logits, limit, Settings(*given))


def next_tokens(
    logits: Tensor,
    draws: DrawSettings,
    *,
    limit: int,
    bias: TokenBias | None = None,
    penalties: TokenPenalties | None = None,
    allowed: AllowedTokens | None = None,
    plan: DrawPlan | None = None,
) -> Tensor:
    """See the contract; `plan` as in `drawn`.

    Raises UnsupportedError for what `serves` does not take.
    """
    cuts = (draws.temperature, draws.top_k, draws.top_p, draws.min_p)
    settings = Settings(*cuts, None, draws.seeds, draws.positions, draws.purposes)
    return drawn("next_tokens", logits, limit, settings, Rules(bias, penalties, allowed), plan)


def serves(logits: Tensor, limit: int) -> bool:
    """Whether this form draws from such rows: else another tier has to."""
    return (
        logits.device.type == "cuda"
        and logits.dtype in _TYPES
        and logits.stride(1) == 1
        and limit <= MOST_IDS
        and architecture(_index(logits)) // 10 * 10 in ARCHITECTURES
    )


def drawn(
    op: str,
    logits: Tensor,
    limit: int,
    settings: Settings,
    rules: Rules | None = None,
    plan: DrawPlan | None = None,
) -> Tensor:
    """The token of each row; `plan` replaces the sizes, for measurements of others.

    Raises UnsupportedError for what `serves` does not take.
    """
    if not serves(logits, limit):
        raise UnsupportedError(
            f"{op}: the CUDA form takes dense rows of at most {MOST_IDS} ids on a card of sm_90 or "
            f"sm_100, got {limit} of {logits.dtype} on {logits.device}"
        )
    rows = logits.shape[0]
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if not rows:
        return out
    plan = plan or draw_plan(rows, limit, _TYPES[logits.dtype])
    planes, sizes = arguments(logits, limit, settings, rules or Rules(), plan)
    how = Launch(rows * plan.cluster, plan.threads, plan.shared_bytes, plan.cluster)
    addresses = [None if plane is None else plane.data_ptr() for plane in (*planes, out)]
    start(_kernel(_index(logits), plan), how, addresses, sizes)
    return out


def arguments(
    logits: Tensor, limit: int, settings: Settings, rules: Rules, plan: DrawPlan
) -> tuple[list[Tensor | None], list[int]]:
    """What the kernel takes: planes in the order of its parameters (`out` is the last), sizes."""
    *planes, biases, earliers, words = rules.values
    found: list[Tensor | None] = [logits, *map(_dense, settings.values)]
    for plane in planes:
        assert plane is None or isinstance(plane, Tensor)
        found.append(plane)
    assert isinstance(biases, int) and isinstance(earliers, int) and isinstance(words, int)
    lengths = [biases, earliers, words, logits.shape[1]]
    return found, [logits.stride(0), limit, *lengths, plan.chunk]


def ready(device: torch.device, dtype: torch.dtype, limit: int) -> None:
    """Build and load what draws from such logits need, for any number of rows.

    Raises UnsupportedError when a kernel can be neither found nor compiled.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    for rows in (1, FEW_ROWS + 1):
        _kernel(index, draw_plan(rows, limit, _TYPES[dtype]))


def program(number: int, plan: DrawPlan) -> Program:
    """What a draw with these sizes starts on an architecture."""
    return Program.of(_SOURCE, number, plan.defines)


def _dense(setting: Tensor | None) -> Tensor | None:
    """A setting as the kernel reads it: floats of 64 bits, integers of 64 bits."""
    if setting is None:
        return None
    wide = torch.float64 if setting.is_floating_point() else torch.int64
    return setting.to(wide).contiguous()


def _kernel(device: int, plan: DrawPlan) -> Kernel:
    return _loaded(device, tuple(sorted(plan.defines.items())), plan.cluster > NARROW)


@cache
def _loaded(device: int, defines: tuple[tuple[str, int], ...], is_large: bool) -> Kernel:
    assert shared_limit(architecture(device)) >= 1 << 17
    found = kernel(device, _SOURCE, _NAME, defines)
    if is_large:
        allow_large_clusters(found)
    return found


def _index(x: Tensor) -> int:
    return torch.cuda.current_device() if x.device.index is None else x.device.index
