"""Everything one forward pass reads besides weights: tokens, positions, rows and caches."""

from dataclasses import dataclass

from torch import Tensor

from ninfer.models.config import ModelConfig
from ninfer.ops.tensors import ConvState, DeltaState, PagedKV, RaggedRows


@dataclass(frozen=True, slots=True)
class MediaRows:
    """Token rows whose embeddings come from the vision tower instead of the table."""

    rows: Tensor  # [M] int64, all different
    embeddings: Tensor  # [M, hidden]


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """Flat tokens of several sequences. Prefill, decode and verify differ only in row counts."""

    tokens: Tensor  # [T] int64
    positions: Tensor  # [3, T] int64, temporal, height and width axis
    rows: RaggedRows
    kv_slots: Tensor  # [T] int64, where each row's key and value go: page * page_size + row
    logit_rows: Tensor  # [R] int64, rows whose logits are wanted
    media: MediaRows | None = None


@dataclass(frozen=True, slots=True)
class GdnState:
    """State slots of one Gated DeltaNet layer; slot s belongs to at most one sequence."""

    conv: ConvState
    delta: DeltaState


@dataclass(frozen=True, slots=True)
class Caches:
    """Per-layer caches by layer index; the runtime owns them, a forward pass updates them.

    A pass over held rows reads `pending` and leaves it: whoever accepts rows sets it, once for all
    layers, whose states share this tensor.
    """

    attention: dict[int, PagedKV]
    gdn: dict[int, GdnState]
    pending: Tensor  # [S] int64, accepted rows in the window of each state slot


@dataclass(frozen=True, slots=True)
class KvCacheSpec:
    """Bytes of a paged KV layer: grows with the context."""

    layers: int
    heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class StateCacheSpec:
    """Bytes of a recurrent layer: fixed per sequence."""

    layers: int
    conv_shape: tuple[int, int]  # rows, channels
    recurrent_shape: tuple[int, int, int]  # value heads, value dim, key dim
    key_heads: int

    def bytes_per_slot(
        self, activation_bytes: int = 2, window: int = 1, matrix_bytes: int = 4
    ) -> int:
        """Bytes of one sequence's state over all layers, with a window of so many rows.

        Convolution inputs, keys and values are activations, the gates float32; an entry of the
        matrix has `matrix_bytes`.
        """
        heads, value_dim, key_dim = self.recurrent_shape
        inputs = (self.conv_shape[0] + window) * self.conv_shape[1]
        activations = inputs + window * (self.key_heads * key_dim + heads * value_dim)
        matrix = heads * value_dim * key_dim * matrix_bytes
        return self.layers * (activations * activation_bytes + matrix + window * 2 * heads * 4)


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """What a model keeps between passes, by layer kind."""

    kv: KvCacheSpec
    state: StateCacheSpec


def cache_spec(config: ModelConfig) -> CacheSpec:
    """The cache kinds of a configuration's text decoder."""
    text, gdn = config.text, config.text.gdn
    return CacheSpec(
        kv=KvCacheSpec(
            len(text.attention_layers), text.attention.kv_heads, text.attention.head_dim
        ),
        state=StateCacheSpec(
            len(text.gdn_layers),
            (gdn.conv_width - 1, gdn.conv_channels),
            (gdn.value_heads, gdn.value_dim, gdn.key_dim),
            gdn.key_heads,
        ),
    )
