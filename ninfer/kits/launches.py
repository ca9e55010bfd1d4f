"""What the kernels of a model are launched with: one call of each op, weight and token count."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import torch
from torch import Tensor

from ninfer import ops
from ninfer.errors import UsageError
from ninfer.kits.attention_launches import attention_calls
from ninfer.kits.round_calls import round_calls
from ninfer.models.qwen3_6.products import products
from ninfer.models.qwen3_6.recipe import recipe_for
from ninfer.models.registry import REGISTERED
from ninfer.ops.tensors import Weight

Call = Callable[[], object]

# One count of each token tile, and one beyond them.
TOKENS: Final = (16, 32, 64, 65)
_META: Final = torch.device("meta")


def models() -> tuple[str, ...]:
    """The models that have a list, as `model/weights`."""
    return tuple("/".join(identity) for identity in REGISTERED)


def model_calls(name: str, tokens: Sequence[int] = TOKENS) -> list[Call]:
    """Calls of ops that between them launch every kernel of a model, by the chosen backend.

    Each op and weight shape, and attention by each cache format, comes once with each of the token
    counts, in bf16. Raises UsageError for a name outside `models()`.
    """
    found = {"/".join(identity): config for identity, config in REGISTERED.items()}
    if name not in found:
        raise UsageError(f"model {name!r} has no list of kernels; known: {', '.join(found)}")
    calls: dict[tuple[str, tuple[int, ...], str], list[Call]] = {}
    for op, weight in products(found[name], recipe_for(found[name], name.split("/")[1])):
        form = str(weight.dtype) if isinstance(weight, Tensor) else weight.format
        key = (op, tuple(weight.shape), form)
        if key not in calls:
            calls[key] = list(_calls(op, weight, tokens))
    products_of_layers = (call for group in calls.values() for call in group)
    attended = attention_calls(found[name], tokens)
    return [*products_of_layers, *attended, *round_calls(found[name])]


def _calls(op: str, weight: Weight, tokens: Sequence[int]) -> Iterator[Call]:
    if op == "embed":
        ids = torch.empty(1, dtype=torch.int64, device=_META)
        yield partial(ops.embed, ids, weight, dtype=torch.bfloat16)
        return
    product = ops.linear_swiglu if op == "linear_swiglu" else ops.linear
    for count in tokens:
        x = torch.empty(count, weight.shape[1], dtype=torch.bfloat16, device=_META)
        yield partial(product, x, weight)
