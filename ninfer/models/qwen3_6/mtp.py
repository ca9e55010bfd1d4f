"""MTP drafter: one more decoder layer that fuses a target hidden state with the next token."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ninfer import ops
from ninfer.models.config import ModelConfig, TextConfig
from ninfer.models.forward_batch import ForwardBatch, KvCacheSpec, MediaRows
from ninfer.models.parameters import ParameterTable
from ninfer.models.qwen3_6.attention import attention_mixer
from ninfer.models.qwen3_6.decoder import embed_tokens
from ninfer.models.qwen3_6.feed_forward import feed_forward
from ninfer.models.qwen3_6.recipe import Recipe
from ninfer.models.qwen3_6.weights import (
    AttentionWeights,
    LayerWeights,
    TextWeights,
    WeightSource,
    attention_weights,
    component_rows,
    feed_forward_weights,
)
from ninfer.ops.tensors import PagedKV, Weight


@dataclass(frozen=True, slots=True)
class MtpWeights:
    """The stem that joins token and hidden state, a full-attention layer, and a final norm."""

    input_projection: Weight  # [hidden, 2 * hidden], embedding columns first
    embedding_norm: Tensor  # [hidden]
    hidden_norm: Tensor  # [hidden]
    layer: LayerWeights
    final_norm: Tensor  # [hidden]


def mtp_cache_spec(text: TextConfig) -> KvCacheSpec:
    """The KV cache of the drafter's one layer, beside the decoder's own."""
    return KvCacheSpec(1, text.attention.kv_heads, text.attention.head_dim)


def shifted_batch(
    batch: ForwardBatch, following: Tensor, following_media: MediaRows | None = None
) -> ForwardBatch:
    """What MTP consumes beside a target pass: at position t the token of position t + 1.

    `following[b]` [B] is the token after the last row of sequence b: the next of the prompt, or
    the one just chosen. Where that token is a placeholder of media, `following_media` has its
    embedding, at the sequence's last row. Every sequence has rows. Positions, cache rows and the
    row layout stay as they are.
    """
    first, last = batch.rows.offsets[:-1], batch.rows.offsets[1:] - 1
    tokens = batch.tokens.roll(-1)
    tokens[last] = following
    parts = [] if following_media is None else [following_media]
    if batch.media is not None:
        # A sequence's first row was consumed by the row before it, in an earlier pass.
        inside = ~torch.isin(batch.media.rows, first)
        parts.append(MediaRows(batch.media.rows[inside] - 1, batch.media.embeddings[inside]))
    return replace(batch, tokens=tokens, media=_joined(parts))


def _joined(parts: list[MediaRows]) -> MediaRows | None:
    if not parts:
        return None
    rows, embeddings = zip(*((part.rows, part.embeddings) for part in parts), strict=True)
    return MediaRows(torch.cat(rows), torch.cat(embeddings))


def mtp_forward(
    weights: MtpWeights,
    target: TextWeights,
    text: TextConfig,
    batch: ForwardBatch,
    hidden: Tensor,
    cache: PagedKV,
) -> Tensor:
    """Hidden states [T, hidden] after the drafter's final norm; a head over row t drafts t + 2.

    `hidden` [T, hidden] are final-normed states of the target at the batch's positions, or the
    drafter's own result when it goes on from its own draft. `batch` has the positions of those
    rows, the tokens after them (see `shifted_batch`), and pages of the drafter's cache, whose
    rows `batch.kv_slots` are written. Of `target` only the embedding is read.
    """
    embedded = embed_tokens(target, batch, dtype=hidden.dtype)
    parts = (
        ops.rmsnorm(embedded, weights.embedding_norm, eps=text.eps, unit_offset=True),
        ops.rmsnorm(hidden, weights.hidden_norm, eps=text.eps, unit_offset=True),
    )
    residual = ops.linear(torch.cat(parts, dim=-1), weights.input_projection)
    layer = weights.layer
    assert isinstance(layer.mixer, AttentionWeights)
    h = ops.rmsnorm(residual, layer.input_norm, eps=text.eps, unit_offset=True)
    mixed = attention_mixer(h, layer.mixer, text, batch, cache)
    h, residual = ops.add_rmsnorm(mixed, residual, layer.post_norm, eps=text.eps, unit_offset=True)
    update = feed_forward(h, layer.feed_forward, text)
    h, _ = ops.add_rmsnorm(update, residual, weights.final_norm, eps=text.eps, unit_offset=True)
    return h


def bind_mtp(
    source: WeightSource, config: ModelConfig, places: Recipe | ParameterTable
) -> MtpWeights:
    """Build the view from stored objects, each asked for exactly once; see `bind_text`."""
    rows, layer = component_rows(source, config, places, "mtp/"), "mtp/layers/0"
    return MtpWeights(
        input_projection=rows.take("mtp/input_projection"),
        embedding_norm=rows.tensor("mtp/embedding_norm"),
        hidden_norm=rows.tensor("mtp/hidden_norm"),
        layer=LayerWeights(
            input_norm=rows.tensor(f"{layer}/input_norm"),
            mixer=attention_weights(rows, f"{layer}/attention", config.text),
            post_norm=rows.tensor(f"{layer}/post_attention_norm"),
            feed_forward=feed_forward_weights(rows, layer, config.text),
        ),
        final_norm=rows.tensor("mtp/final_norm"),
    )
