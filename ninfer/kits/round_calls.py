"""What the kernels of a round behind the head are launched with: rules, draws, drafts, blocks."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from ninfer import ops
from ninfer.models.config import Dflash2Config, ModelConfig
from ninfer.models.qwen3_6.sizes import DENSE_38_27B, DFLASH2_27B
from ninfer.ops.tensors import (
    AllowedTokens,
    Candidates,
    DrawSettings,
    RaggedRows,
    TokenBias,
    TokenPenalties,
)

_META: Final = torch.device("meta")
# Rows of a call: kernels do not depend on them.
_ROWS: Final = 8
_PAGE: Final = 64
_DRAFTS: Final = (0, 1, 3, 7, 15)


def round_calls(config: ModelConfig) -> Iterator[Callable[[], object]]:
    """Calls of ops that between them launch every kernel of a model's rounds."""
    text = config.text
    logits = _floats(_ROWS, text.vocab_rows, dtype=torch.bfloat16)
    yield from _sampling(logits, text.addressable)
    yield from _rules(logits)
    for width in _DRAFTS:
        yield partial(
            ops.block_rows, _ints(_ROWS), _ints(_ROWS, width), _ints(_ROWS), _ints(_ROWS, 16), _PAGE
        )
    yield partial(ops.accept_drafts, _ints(_ROWS), _ints(_ROWS), _ints(_ROWS + 1))
    yield partial(ops.indexed_argmax, logits, _ints(text.addressable))
    # Files of Qwen3.8 are made with the drafter and without.
    is_either = config.generation == DENSE_38_27B.generation
    if drafter := config.dflash2 or (DFLASH2_27B if is_either else None):
        yield from _selector(config, drafter, logits)


def _sampling(logits: Tensor, limit: int) -> Iterator[Callable[[], object]]:
    vocabulary, wide = logits.shape[1], torch.float64
    yield partial(ops.argmax, logits, limit)
    yield partial(ops.top_logprobs, logits, limit, 20)
    yield partial(ops.uniforms, _ints(_ROWS), _ints(_ROWS), _ints(_ROWS))
    heat, nucleus, floor = (_floats(_ROWS, dtype=wide) for _ in range(3))
    draws = DrawSettings(
        heat, _ints(_ROWS), nucleus, floor, _ints(_ROWS), _ints(_ROWS), _ints(_ROWS)
    )
    bias = TokenBias(_ints(_ROWS, 8), _floats(_ROWS, 8))
    factors = (_floats(_ROWS), _floats(_ROWS), _floats(_ROWS))
    counts = _ints(_ROWS, vocabulary, dtype=torch.int32)
    penalties = TokenPenalties(counts, _ints(_ROWS), _ints(_ROWS, 4), *factors)
    masks = _ints(_ROWS, -(-vocabulary // 32), dtype=torch.int32)
    allowed = AllowedTokens(masks, _ints(_ROWS))
    rules: dict[str, Any] = {"bias": bias, "penalties": penalties, "allowed": allowed}
    # Decode rounds have penalties alone.
    for given in ({}, {"penalties": penalties}, rules):
        yield partial(ops.next_tokens, logits, draws, limit=limit, **given)
    # Logits as the separate rules leave them, and as the head does.
    for x in (logits, _floats(*logits.shape)):
        yield partial(
            ops.sample,
            x,
            limit=limit,
            temperature=heat,
            top_k=_ints(_ROWS),
            top_p=nucleus,
            min_p=floor,
            u=_floats(_ROWS, dtype=wide),
        )


def _rules(logits: Tensor) -> Iterator[Callable[[], object]]:
    rows, vocabulary = logits.shape
    counts = _ints(rows, vocabulary, dtype=torch.int32)
    factors = (_floats(rows), _floats(rows), _floats(rows))
    yield partial(ops.penalise, logits, counts, *factors)
    yield partial(ops.add_bias, logits, _ints(5), _ints(5), _floats(5))
    for x in (logits, _floats(*logits.shape)):
        yield partial(ops.mask, x, _ints(rows, -(-vocabulary // 32), dtype=torch.int32))


def _selector(
    config: ModelConfig, drafter: Dflash2Config, logits: Tensor
) -> Iterator[Callable[[], object]]:
    half, count, rank = torch.bfloat16, drafter.selector_top_k, drafter.selector_rank
    table = _floats(config.text.vocab_rows, rank, dtype=half)
    some = _floats(_ROWS, count, dtype=half)
    ids = _ints(_ROWS, count)
    yield partial(ops.indexed_top, logits, _ints(config.text.addressable), count)
    gate = _floats(_ROWS, rank, dtype=half)
    yield partial(ops.edge_scores, some, ids, _ints(_ROWS), gate, table, table)
    heat = _floats(_ROWS, dtype=torch.float64)
    yield partial(ops.tempered_softmax, _floats(_ROWS, count), heat)
    weights = _floats(_ROWS, count, dtype=torch.float64)
    yield partial(ops.draw, Candidates(ids, weights), heat)
    hidden, taps = config.text.hidden, drafter.conv_taps
    rows = RaggedRows(_ints(2), _ints(1), _ints(1, 1), _ints(1))
    x, base = _floats(_ROWS, hidden, dtype=half), _floats(taps, hidden, dtype=half)
    both = _floats(_ROWS, 2, taps, hidden // drafter.conv_group, dtype=half)
    yield partial(ops.dynamic_conv, x, base, both[:, 0], rows)


def _floats(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=_META)


def _ints(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=_META)
