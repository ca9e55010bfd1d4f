"""Small random models with drafters, and the pages and caches that tests of drafters run on."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ninfer.models.config import (
    AttentionSizes,
    Dflash2Config,
    DflashConfig,
    GdnSizes,
    ModelConfig,
    MoeSizes,
    TextConfig,
)
from ninfer.models.forward_batch import GdnState, KvCacheSpec, StateCacheSpec
from ninfer.models.inventory import TensorSpec
from ninfer.models.qwen3_6 import recipe_for
from ninfer.models.qwen3_6.inventory import inventory
from ninfer.models.qwen3_6.recipe import Recipe
from ninfer.ops import ConvState, DeltaState, PagedKV, RaggedRows

HIDDEN, VOCABULARY, ADDRESSABLE, PAGE = 32, 90, 80, 4


def small_config(*, moe: bool = False, window: int = 8) -> ModelConfig:
    """All drafters at once. Two KV heads, three taps layers: grouping and order matter."""
    text = TextConfig(
        hidden=HIDDEN,
        layers=4,
        attention_interval=4,
        mlp_width=0 if moe else 48,
        vocab_rows=VOCABULARY,
        addressable=ADDRESSABLE,
        eps=1e-6,
        context=4096,
        attention=AttentionSizes(4, 2, 16, 8, 1e7),
        gdn=GdnSizes(2, 4, 8, 8, 4),
        moe=MoeSizes(experts=6, top_k=2, expert_width=16, shared_width=24) if moe else None,
    )
    shared = {
        "mlp_width": 40,
        "query_heads": 6,
        "kv_heads": 2,
        "head_dim": 16,
        "target_layers": (0, 2, 3),
        "window": window,
        "mask_id": 85,
    }
    return ModelConfig(
        text=text,
        mtp=True,
        draft_head_rows=50,
        dflash=DflashConfig(layers=3, block=16, **shared),
        dflash2=Dflash2Config(
            layers=2, conv_taps=2, conv_group=4, selector_rank=12, selector_top_k=5, **shared
        ),
    )


def recipe_of(config: ModelConfig) -> Recipe:
    return recipe_for(config, "groupwise-int")


class Objects:
    """Every stored tensor of a configuration as random float64, and what was asked for."""

    def __init__(self, config: ModelConfig, seed: int = 11) -> None:
        self.asked: list[str] = []
        generator = torch.Generator().manual_seed(seed)
        self.tensors: dict[str, Tensor] = {}
        for spec in inventory(config, recipe_of(config)):
            if isinstance(spec, TensorSpec):
                noise = torch.randn(spec.shape, generator=generator, dtype=torch.float64)
                size = spec.shape[-1] ** -0.5 if len(spec.shape) > 1 else 0.3
                self.tensors[spec.name] = noise * size
        for name in ("text/token_embedding", "text/output_head", "text/draft_head"):
            self.tensors[name] *= HIDDEN**0.5
        order = torch.randperm(ADDRESSABLE, generator=generator)
        self.tensors["text/draft_head_token_ids"] = order[:50].to(torch.int32)

    def __call__(self, name: str) -> Tensor:
        self.asked.append(name)
        return self.tensors[name]

    def named(self) -> dict[str, np.ndarray]:
        return {name: tensor.numpy() for name, tensor in self.tensors.items()}

    def below(self, prefix: str) -> list[str]:
        return [name for name in self.tensors if name.startswith(prefix)]


def empty_caches(spec: KvCacheSpec, pages: int, form: str = "fp32") -> list[PagedKV]:
    """One cache per layer, full of NaN: a row that nobody wrote shows at once."""
    words = torch.float32 if form == "fp32" else torch.bfloat16
    shape = (pages, PAGE, spec.heads, spec.head_dim)
    return [
        PagedKV(form, *(torch.full(shape, torch.nan, dtype=words) for _ in range(2)))
        for _ in range(spec.layers)
    ]


def empty_states(spec: StateCacheSpec) -> tuple[dict[int, GdnState], Tensor]:
    """Empty states of layers 0, 1, ... for one sequence in float64, and their pending rows."""
    heads, value_dim, key_dim = spec.recurrent_shape
    pending = torch.zeros(1, dtype=torch.int64)

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(1, *shape, dtype=torch.float64)

    states = {
        layer: GdnState(
            ConvState(zeros(*spec.conv_shape), zeros(0, spec.conv_shape[1]), pending),
            DeltaState(
                zeros(*spec.recurrent_shape),
                zeros(0, spec.key_heads, key_dim),
                zeros(0, heads, value_dim),
                zeros(0, heads),
                zeros(0, heads),
                pending,
            ),
        )
        for layer in range(spec.layers)
    }
    return states, pending


@dataclass
class Pages:
    """Shuffled pages of several sequences in one pool."""

    table: Tensor  # [B, P]

    @classmethod
    def of(cls, sequences: int, length: int) -> "Pages":
        width = -(-length // PAGE)
        order = torch.randperm(sequences * width, generator=torch.Generator().manual_seed(2))
        return cls(order.view(sequences, width))

    @property
    def count(self) -> int:
        return self.table.numel()

    def slots(self, sequence: int, start: int, stop: int) -> list[int]:
        return [int(self.table[sequence, p // PAGE]) * PAGE + p % PAGE for p in range(start, stop)]

    def rows(self, spans: list[tuple[int, int]]) -> RaggedRows:
        """Rows start..stop - 1 of each sequence, in order."""
        lengths = [stop - start for start, stop in spans]
        return RaggedRows(
            offsets=torch.tensor([0, *lengths]).cumsum(0),
            kv_lengths=torch.tensor([stop for _, stop in spans]),
            page_table=self.table,
            state_slots=torch.arange(len(spans)),
        )
