"""What the kernels of a model are launched with: one call of each op, weight and token count."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Final

import torch
from torch import Tensor

from ninfer import ops
from ninfer.artifact import open_artifact
from ninfer.artifact.packaged import packaged_artifacts, path_of_name
from ninfer.engine.contents import read_contents
from ninfer.errors import UsageError
from ninfer.kits.attention_launches import attention_calls
from ninfer.kits.mixer_calls import mixer_calls
from ninfer.kits.round_calls import round_calls
from ninfer.kits.row_calls import row_calls
from ninfer.models.config import ModelConfig
from ninfer.models.qwen3_6.products import mixtures, products
from ninfer.models.qwen3_6.recipe import recipe_for
from ninfer.models.qwen3_6.weights import SparseMoeWeights
from ninfer.models.registry import REGISTERED
from ninfer.ops.tensors import Weight

Call = Callable[[], object]

# One count of each token tile, and one beyond them.
TOKENS: Final = (16, 32, 64, 65)
_META: Final = torch.device("meta")


def models() -> tuple[str, ...]:
    """The models that have a list, as `model/weights`: published ones and those of the package."""
    return (*("/".join(identity) for identity in REGISTERED), *_packaged())


def registered(name: str) -> tuple[ModelConfig, str]:
    """Configuration and weights id of a name. Raises UsageError for one outside `models()`."""
    if (file := _packaged().get(name)) is not None:
        with open_artifact(path_of_name(file)) as artifact:
            return read_contents(artifact).config, name.split("/")[1]
    found = {"/".join(identity): config for identity, config in REGISTERED.items()}
    if name not in found:
        raise UsageError(f"model {name!r} has no list of kernels; known: {', '.join(models())}")
    return found[name], name.split("/")[1]


@cache
def _packaged() -> dict[str, str]:
    """Identity to name of the artifacts of the package."""
    return {item.id: item.name for item in packaged_artifacts()}


def model_calls(name: str, tokens: Sequence[int] = TOKENS) -> list[Call]:
    """Calls of ops that between them launch every kernel of a model, by the chosen backend.

    Each op and weight shape, and attention by each cache format, comes once with each of the token
    counts, in bf16. Raises UsageError for a name outside `models()`.
    """
    config, weights = registered(name)
    recipe = recipe_for(config, weights)
    calls: dict[tuple[str, ...], list[Call]] = {}
    top_k = config.text.moe.top_k if config.text.moe else 0
    for op, weight in products(config, recipe):
        key: tuple[str, ...] = (op, _named(weight))
        if key not in calls:
            calls[key] = list(_calls(op, weight, tokens, top_k))
    for mixture in mixtures(config, recipe):
        key = ("sparse_moe", *map(_named, _experts(mixture)))
        if key not in calls:
            calls[key] = list(_mixture_calls(mixture, tokens, top_k))
    products_of_layers = (call for group in calls.values() for call in group)
    between = (call for count in tokens for call in row_calls(config.text, count))
    mixers = mixer_calls(config, recipe, tokens)
    attended = attention_calls(config, tokens)
    return [*products_of_layers, *mixers, *attended, *between, *round_calls(config)]


def _named(weight: Weight) -> str:
    """Form and shape of a weight."""
    return f"{weight.dtype if isinstance(weight, Tensor) else weight.format} {list(weight.shape)}"


def _experts(mixture: SparseMoeWeights) -> tuple[Weight, ...]:
    routed, shared = mixture.experts, mixture.shared
    return routed.gate_up, routed.down, shared.gate_up, shared.down


def _calls(op: str, weight: Weight, tokens: Sequence[int], top_k: int) -> Iterator[Call]:
    if op == "embed":
        ids = torch.empty(1, dtype=torch.int64, device=_META)
        yield partial(ops.embed, ids, weight, dtype=torch.bfloat16)
        return
    product = ops.linear_swiglu if op == "linear_swiglu" else ops.linear
    for count in tokens:
        x = torch.empty(count, weight.shape[1], dtype=torch.bfloat16, device=_META)
        if op == "route_experts":
            yield partial(ops.route_experts, x, weight, top_k)
        else:
            yield partial(product, x, weight)


def _mixture_calls(mixture: SparseMoeWeights, tokens: Sequence[int], top_k: int) -> Iterator[Call]:
    for count in tokens:
        x = torch.empty(count, mixture.router.shape[1], dtype=torch.bfloat16, device=_META)
        ids = torch.empty(count, top_k, dtype=torch.int64, device=_META)
        weights = torch.empty(count, top_k, dtype=torch.float32, device=_META)
        yield partial(
            ops.sparse_moe, x, weights, ids, mixture.experts, mixture.shared, weights[:, :1]
        )
