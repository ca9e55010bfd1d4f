"""Frozen sizes of a model: text, mixture of experts, MTP, vision and drafter parts."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ninfer.errors import ConfigError
from ninfer.models.config_fields import Fields
from ninfer.models.config_rules import check_members

GENERATIONS: Final = ("qwen3.6", "qwen3.8")


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """Gated full attention: `query_heads` share `kv_heads`, only `rotary_dim` dims rotate."""

    query_heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int
    rope_theta: float
    rope_factor: float = 1.0  # of YaRN, beyond a context of `native` positions; 1 is none
    native: int = 1

    @property
    def query_width(self) -> int:
        """Rows of the query projection, of its gate, and columns of the output projection."""
        return self.query_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Rows of the key projection and of the value projection."""
        return self.kv_heads * self.head_dim

    @property
    def scale(self) -> float:
        """Factor on query-key products."""
        return 1.0 / math.sqrt(self.head_dim)


@dataclass(frozen=True, slots=True)
class GdnSizes:
    """Gated DeltaNet: value head j reads key head `j // (value_heads / key_heads)`."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_width: int

    @property
    def key_width(self) -> int:
        """Rows of the query projection and of the key projection."""
        return self.key_heads * self.key_dim

    @property
    def value_width(self) -> int:
        """Rows of the value projection and of the output gate z."""
        return self.value_heads * self.value_dim

    @property
    def conv_channels(self) -> int:
        """Channels that the causal convolution runs over: queries, keys and values."""
        return 2 * self.key_width + self.value_width


@dataclass(frozen=True, slots=True)
class MoeSizes:
    """Sparse mixture of experts with one shared expert."""

    experts: int
    top_k: int
    expert_width: int
    shared_width: int


@dataclass(frozen=True, slots=True)
class TextConfig:
    """The decoder. `mlp_width` is 0 exactly when `moe` is given."""

    hidden: int
    layers: int
    attention_interval: int
    mlp_width: int
    vocab_rows: int
    addressable: int
    eps: float
    context: int
    attention: AttentionSizes
    gdn: GdnSizes
    moe: MoeSizes | None = None

    def is_attention(self, layer: int) -> bool:
        """Whether layer `layer` is full attention; all others are Gated DeltaNet."""
        return (layer + 1) % self.attention_interval == 0

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """Layer indices with a KV cache, in order."""
        return tuple(i for i in range(self.layers) if self.is_attention(i))

    @property
    def gdn_layers(self) -> tuple[int, ...]:
        """Layer indices with a recurrent state, in order."""
        return tuple(i for i in range(self.layers) if not self.is_attention(i))


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """The vision tower and its merger into text width."""

    depth: int
    hidden: int
    mlp_width: int
    heads: int
    patch: int
    temporal_patch: int
    merge: int
    positions: int
    output: int

    @property
    def patch_row(self) -> int:
        """Length of one flattened input patch: 3 channels x temporal x height x width."""
        return 3 * self.temporal_patch * self.patch * self.patch

    @property
    def merge_width(self) -> int:
        """Input width of the merger: one merged block of patches."""
        return self.hidden * self.merge * self.merge


@dataclass(frozen=True, slots=True)
class DflashConfig:
    """The DFlash block drafter."""

    layers: int
    mlp_width: int
    query_heads: int
    kv_heads: int
    head_dim: int
    target_layers: tuple[int, ...]
    window: int
    mask_id: int
    block: int


@dataclass(frozen=True, slots=True)
class Dflash2Config:
    """The DFlash2 block drafter: all layers slide, short dynamic convolutions, a selector."""

    layers: int
    mlp_width: int
    query_heads: int
    kv_heads: int
    head_dim: int
    target_layers: tuple[int, ...]
    window: int
    mask_id: int
    conv_taps: int
    conv_group: int
    selector_rank: int
    selector_top_k: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything that fixes shapes. `draft_head_rows` is 0 when there is no indexed draft head.

    `generation` is the release that the checkpoint belongs to. Shapes do not depend on it; the
    numeric formats of its published files do.
    """

    text: TextConfig
    mtp: bool
    draft_head_rows: int
    vision: VisionConfig | None = None
    dflash: DflashConfig | None = None
    dflash2: Dflash2Config | None = None
    generation: str = GENERATIONS[0]


def stretched(config: ModelConfig, factor: float | None) -> ModelConfig:
    """The model with a context `factor` times as long by YaRN, decoder and MTP alike.

    Positions within the native context turn otherwise too, so answers move a little there. Block
    drafters look back over a window far below it, and stay as they are. None or 1: as it is.
    """
    if factor is None or factor == 1:
        return config
    text = config.text
    attention = replace(text.attention, rope_factor=factor, native=text.context)
    text = replace(text, attention=attention, context=int(factor * text.context))
    return replace(config, text=text)


# A damaged file must not ask for endless work.
_MOST_LAYERS: Final = 1024


def model_config_from_fields(values: Mapping[str, Any]) -> ModelConfig:
    """Read a configuration with Hugging Face field names; no dimension has a default,
    except that every row is a token where `addressable_vocab_size` is not given.

    Members: `text_config` (required), `vision_config`, `dflash_config`, `dflash2_config`
    (optional), `mtp` (bool), `draft_head_rows` (0 or the number of rows), `generation` (one of
    GENERATIONS, the first when it is not given). Raises ConfigError naming the field.
    """
    fields = Fields(values, "config")
    check_members(values)
    mtp = values.get("mtp", False)
    if not isinstance(mtp, bool):
        raise ConfigError(f"config.mtp must be true or false, not {mtp!r}")
    generation = values.get("generation", GENERATIONS[0])
    if generation not in GENERATIONS:
        known = ", ".join(GENERATIONS)
        raise ConfigError(f"config.generation must be one of {known}, not {generation!r}")
    config = ModelConfig(
        text=_text_config(fields.section("text_config")),
        mtp=mtp,
        draft_head_rows=fields.integer("draft_head_rows") if values.get("draft_head_rows") else 0,
        vision=_vision(fields.section("vision_config")) if fields.has("vision_config") else None,
        dflash=_dflash(fields.section("dflash_config")) if fields.has("dflash_config") else None,
        dflash2=(
            _dflash2(fields.section("dflash2_config")) if fields.has("dflash2_config") else None
        ),
        generation=generation,
    )
    check_config(config)
    return config


def _text_config(fields: Fields) -> TextConfig:
    """Read the decoder's sizes. Raises ConfigError naming the field."""
    moe = _moe(fields) if fields.has("num_experts") else None
    vocab_rows = fields.integer("vocab_size")
    has_bound = fields.has("addressable_vocab_size")
    return TextConfig(
        hidden=fields.integer("hidden_size"),
        layers=fields.integer("num_hidden_layers"),
        attention_interval=fields.integer("full_attention_interval"),
        mlp_width=0 if moe else fields.integer("intermediate_size"),
        vocab_rows=vocab_rows,
        addressable=fields.integer("addressable_vocab_size") if has_bound else vocab_rows,
        eps=fields.number("rms_norm_eps"),
        context=fields.integer("max_position_embeddings"),
        attention=_attention(fields),
        gdn=GdnSizes(
            key_heads=fields.integer("linear_num_key_heads"),
            value_heads=fields.integer("linear_num_value_heads"),
            key_dim=fields.integer("linear_key_head_dim"),
            value_dim=fields.integer("linear_value_head_dim"),
            conv_width=fields.integer("linear_conv_kernel_dim"),
        ),
        moe=moe,
    )


def _attention(fields: Fields) -> AttentionSizes:
    rope = fields.section("rope_parameters")
    head_dim = fields.integer("head_dim")
    return AttentionSizes(
        query_heads=fields.integer("num_attention_heads"),
        kv_heads=fields.integer("num_key_value_heads"),
        head_dim=head_dim,
        rotary_dim=round(head_dim * rope.number("partial_rotary_factor")),
        rope_theta=rope.number("rope_theta"),
    )


def _moe(fields: Fields) -> MoeSizes:
    return MoeSizes(
        experts=fields.integer("num_experts"),
        top_k=fields.integer("num_experts_per_tok"),
        expert_width=fields.integer("moe_intermediate_size"),
        shared_width=fields.integer("shared_expert_intermediate_size"),
    )


def _vision(fields: Fields) -> VisionConfig:
    return VisionConfig(
        depth=fields.integer("depth"),
        hidden=fields.integer("hidden_size"),
        mlp_width=fields.integer("intermediate_size"),
        heads=fields.integer("num_heads"),
        patch=fields.integer("patch_size"),
        temporal_patch=fields.integer("temporal_patch_size"),
        merge=fields.integer("spatial_merge_size"),
        positions=fields.integer("num_position_embeddings"),
        output=fields.integer("out_hidden_size"),
    )


def _dflash(fields: Fields) -> DflashConfig:
    return DflashConfig(
        layers=fields.integer("num_hidden_layers"),
        mlp_width=fields.integer("intermediate_size"),
        query_heads=fields.integer("num_attention_heads"),
        kv_heads=fields.integer("num_key_value_heads"),
        head_dim=fields.integer("head_dim"),
        target_layers=fields.integers("target_layer_ids"),
        window=fields.integer("sliding_window"),
        mask_id=fields.integer("mask_token_id"),
        block=fields.integer("block_size"),
    )


def _dflash2(fields: Fields) -> Dflash2Config:
    return Dflash2Config(
        layers=fields.integer("num_hidden_layers"),
        mlp_width=fields.integer("intermediate_size"),
        query_heads=fields.integer("num_attention_heads"),
        kv_heads=fields.integer("num_key_value_heads"),
        head_dim=fields.integer("head_dim"),
        target_layers=fields.integers("target_layer_ids"),
        window=fields.integer("sliding_window"),
        mask_id=fields.integer("mask_token_id"),
        conv_taps=fields.integer("conv_kernel_size"),
        conv_group=fields.integer("conv_group_size"),
        selector_rank=fields.integer("selector_rank"),
        selector_top_k=fields.integer("selector_top_k"),
    )


def check_config(config: ModelConfig) -> None:
    """Refuse sizes that contradict each other. Raises ConfigError naming both values."""
    for name, value, holds, against, other in _rules(config):
        if not holds:
            raise ConfigError(f"config: {name} {value} does not fit {against} {other}")


def _rules(config: ModelConfig) -> Iterator[tuple[str, object, bool, str, object]]:
    """(name, value, whether it fits, what it must fit, that value), for each pair of sizes."""
    text, attention, gdn = config.text, config.text.attention, config.text.gdn
    heads, kv_heads = attention.query_heads, attention.kv_heads
    yield "num_attention_heads", heads, heads % kv_heads == 0, "num_key_value_heads", kv_heads
    values, keys = gdn.value_heads, gdn.key_heads
    yield "linear_num_value_heads", values, values % keys == 0, "linear_num_key_heads", keys
    yield "linear_conv_kernel_dim", gdn.conv_width, gdn.conv_width >= 2, "least width", 2
    rotary, head_dim = attention.rotary_dim, attention.head_dim
    fits = 0 < rotary <= head_dim and rotary % 2 == 0
    yield "rotary dimensions", rotary, fits, "head_dim", head_dim
    yield "num_hidden_layers", text.layers, text.layers <= _MOST_LAYERS, "largest", _MOST_LAYERS
    interval, layers = text.attention_interval, text.layers
    yield "full_attention_interval", interval, interval <= layers, "num_hidden_layers", layers
    rows, bound = text.vocab_rows, text.addressable
    yield "addressable_vocab_size", bound, bound <= rows, "vocab_size", rows
    draft = config.draft_head_rows
    yield "draft_head_rows", draft, draft <= bound, "addressable_vocab_size", bound
    if text.moe:
        chosen, experts = text.moe.top_k, text.moe.experts
        yield "num_experts_per_tok", chosen, chosen <= experts, "num_experts", experts
    if config.vision:
        vision = config.vision
        out, hidden = vision.output, text.hidden
        yield "vision out_hidden_size", out, out == hidden, "hidden_size", hidden
        yield "vision depth", vision.depth, vision.depth <= _MOST_LAYERS, "largest", _MOST_LAYERS
        wide, count = vision.hidden, vision.heads
        # Both coordinates of a patch turn half of the pairs of a head's dims.
        yield "vision hidden_size", wide, wide % (4 * count) == 0, "num_heads times", 4
        cells, side = vision.positions, math.isqrt(vision.positions)
        yield "vision num_position_embeddings", cells, side * side == cells, "the square of", side
    for drafter in (config.dflash, config.dflash2):
        if drafter:
            yield from _drafter_rules(drafter, text)


def _drafter_rules(
    drafter: DflashConfig | Dflash2Config, text: TextConfig
) -> Iterator[tuple[str, object, bool, str, object]]:
    targets = drafter.target_layers
    fits = bool(targets) and max(targets) < text.layers
    yield "drafter target_layer_ids", list(targets), fits, "num_hidden_layers", text.layers
    # The decoder gives taps in the order of its layers.
    order = sorted(set(targets))
    yield "drafter target_layer_ids", list(targets), list(targets) == order, "their order", order
    mask = drafter.mask_id
    yield "drafter mask_token_id", mask, mask < text.vocab_rows, "vocab_size", text.vocab_rows
    layers = drafter.layers
    yield "drafter num_hidden_layers", layers, layers <= _MOST_LAYERS, "largest", _MOST_LAYERS
    heads, kv_heads = drafter.query_heads, drafter.kv_heads
    yield "drafter num_attention_heads", heads, heads % kv_heads == 0, "kv heads", kv_heads
    head_dim = drafter.head_dim
    yield "drafter head_dim", head_dim, head_dim % 2 == 0, "pairs of", 2
    if isinstance(drafter, Dflash2Config):
        group = drafter.conv_group
        yield "hidden_size", text.hidden, text.hidden % group == 0, "conv_group_size", group
