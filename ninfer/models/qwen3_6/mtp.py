"""MTP drafter: one more decoder layer that fuses a target hidden state with the next token."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ninfer import ops
from ninfer.models.config import TextConfig
from ninfer.models.forward_batch import ForwardBatch, KvCacheSpec, MediaRows
from ninfer.models.qwen3_6.attention import attention_mixer
from ninfer.models.qwen3_6.binding import dense
from ninfer.models.qwen3_6.decoder import embed_tokens
from ninfer.models.qwen3_6.feed_forward import feed_forward
from ninfer.models.qwen3_6.recipe import attention_rows
from ninfer.models.qwen3_6.weights import (
    AttentionWeights,
    DenseMlpWeights,
    FusedProjection,
    LayerWeights,
    SparseMoeWeights,
    TextWeights,
    WeightSource,
)
from ninfer.ops.tensors import ExpertWeights, PagedKV, SharedExpert, Weight


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


def bind_mtp(source: WeightSource, text: TextConfig) -> MtpWeights:
    """Build the view from stored objects; `source` is asked for each object exactly once."""
    return MtpWeights(
        input_projection=source("mtp/input_projection"),
        embedding_norm=dense(source, "mtp/embedding_norm"),
        hidden_norm=dense(source, "mtp/hidden_norm"),
        layer=LayerWeights(
            input_norm=dense(source, "mtp/layer/input_norm"),
            mixer=_attention(source, text),
            post_norm=dense(source, "mtp/layer/post_attention_norm"),
            feed_forward=_feed_forward(source, text),
        ),
        final_norm=dense(source, "mtp/final_norm"),
    )


def _attention(source: WeightSource, text: TextConfig) -> AttentionWeights:
    prefix, parts = "mtp/layer/attention", ("query", "key", "gate", "value")
    rows = attention_rows(text.attention)
    return AttentionWeights(
        projections=FusedProjection(
            matrices=(source(f"{prefix}/query_key_gate_value"),),
            parts=(parts,),
            rows=(tuple(rows[part] for part in parts),),
        ),
        query_norm=dense(source, f"{prefix}/query_norm"),
        key_norm=dense(source, f"{prefix}/key_norm"),
        output=source(f"{prefix}/output"),
    )


def _feed_forward(source: WeightSource, text: TextConfig) -> DenseMlpWeights | SparseMoeWeights:
    if not text.moe:
        return DenseMlpWeights(source("mtp/layer/mlp/gate_up"), source("mtp/layer/mlp/down"))
    gate_up, down = source("mtp/layer/moe/routed_gate_up"), source("mtp/layer/moe/routed_down")
    shared = ("mtp/layer/moe/shared_gate_up", "mtp/layer/moe/shared_down")
    return SparseMoeWeights(
        router=source("mtp/layer/moe/router_shared_gate"),
        experts=ExpertWeights(gate_up, down, text.moe.experts),
        shared=SharedExpert(source(shared[0]), source(shared[1])),
    )
