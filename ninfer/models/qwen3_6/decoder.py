"""The layer loop shared by dense and MoE checkpoints: tokens to hidden states to logits."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ninfer import ops
from ninfer.models.config import TextConfig
from ninfer.models.forward_batch import Caches, ForwardBatch
from ninfer.models.qwen3_6.attention import attention_mixer
from ninfer.models.qwen3_6.feed_forward import feed_forward
from ninfer.models.qwen3_6.gdn import gdn_mixer
from ninfer.models.qwen3_6.weights import AttentionWeights, LayerWeights, TextWeights


def decode(
    weights: TextWeights,
    text: TextConfig,
    batch: ForwardBatch,
    caches: Caches,
    *,
    dtype: torch.dtype,
    taps: Sequence[int] = (),
) -> tuple[Tensor, list[Tensor]]:
    """Hidden states [T, hidden] after the final norm, and the residual stream after each tap layer.

    `dtype` is that of activations. Updates the KV rows `batch.kv_slots` and the state slots of the
    batch's sequences in `caches`; nothing else is kept.
    """
    residual = embed_tokens(weights, batch, dtype=dtype)  # [T, hidden]
    h = ops.rmsnorm(residual, weights.layers[0].input_norm, eps=text.eps, unit_offset=True)
    norms = [layer.input_norm for layer in weights.layers[1:]] + [weights.final_norm]
    tapped: list[Tensor] = []
    for index, (layer, next_norm) in enumerate(zip(weights.layers, norms, strict=True)):
        mixed = _mix(h, layer, index, text, batch, caches)
        h, residual = ops.add_rmsnorm(
            mixed, residual, layer.post_norm, eps=text.eps, unit_offset=True
        )
        update = feed_forward(h, layer.feed_forward, text)
        h, residual = ops.add_rmsnorm(update, residual, next_norm, eps=text.eps, unit_offset=True)
        if index in taps:
            tapped.append(residual)
    return h, tapped


def embed_tokens(weights: TextWeights, batch: ForwardBatch, *, dtype: torch.dtype) -> Tensor:
    """Embeddings [T, hidden] of the batch's tokens, those of media in place of placeholders."""
    embedded = ops.embed(batch.tokens, weights.embedding, dtype=dtype)
    if batch.media is None:
        return embedded
    return ops.scatter_rows(embedded, batch.media.rows, batch.media.embeddings)


def logits(weights: TextWeights, hidden: Tensor, rows: Tensor) -> Tensor:
    """Logits [R, vocab_rows] of the wanted rows of hidden [T, hidden]."""
    if not rows.shape[0]:
        # A packed head would be decoded whole for nothing.
        return hidden.new_empty((0, weights.head.shape[0]))
    return ops.linear(hidden[rows], weights.head)


def _mix(
    h: Tensor,
    layer: LayerWeights,
    index: int,
    text: TextConfig,
    batch: ForwardBatch,
    caches: Caches,
) -> Tensor:
    if isinstance(layer.mixer, AttentionWeights):
        return attention_mixer(h, layer.mixer, text, batch, caches.attention[index])
    return gdn_mixer(h, layer.mixer, text, batch, caches.gdn[index])
