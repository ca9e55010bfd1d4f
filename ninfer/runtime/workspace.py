"""Bytes that one pass needs besides weights and caches, estimated for the reference ops.

Each part of a layer counts what is alive at its widest point: activations in their own format and
the float32 numbers that the ops compute with. Parts run one after another, so the widest decides.
"""

from dataclasses import dataclass
from typing import Final

from ninfer.models.config import ModelConfig, TextConfig, VisionConfig

# Prompt rows whose logits exist at once when log-probabilities of the prompt are asked for.
PROMPT_ROWS: Final = 16
_WIDE: Final = 4  # bytes of the float32 numbers that ops compute with
_SCORES: Final = 1 << 24  # attention scores held at once
_CHUNK_ROWS: Final = 64 * 8  # rows that the chunked delta rule takes together
_DECODED_BLOCK: Final = 8 << 20  # a block of decoded weight rows, and its temporaries
# Of captured rounds: rows at most, keys of a split, partial sums at most, what a row's draw keeps
# between its launches, windows that have a graph, graphs at most, and what the driver keeps of one.
_ROUND_ROWS: Final = 64
_SPLIT: Final = 512
_PARTIAL_BYTES: Final = 256 << 20
_DRAW_BYTES: Final = 1 << 19
_WINDOWS: Final = 5
_GRAPHS: Final = 64
_BEHIND: Final = 16
_GRAPH_BYTES: Final = 2 << 20
_PAGE: Final = 64
_LOGIT_BYTES: Final = 24  # of one logit while penalties, masks and candidates are worked out


@dataclass(frozen=True, slots=True)
class PassSizes:
    """How much one pass may carry."""

    rows: int  # tokens of all its pieces
    logit_rows: int
    context: int  # tokens of the longest sequence
    activation_bytes: int
    taps: int = 0  # decoder layers whose residuals a drafter reads


def pass_bytes(text: TextConfig, sizes: PassSizes) -> int:
    """Bytes that the widest part of a pass of the text model keeps beside weights and caches."""
    streams = sizes.rows * text.hidden * sizes.activation_bytes * (4 + 2 * sizes.taps)
    logits = sizes.logit_rows * text.vocab_rows * _LOGIT_BYTES
    widest = max(
        _attention(text, sizes), _gdn(text, sizes), sizes.rows * _feed_forward_row(text), logits
    )
    return streams + widest + _DECODED_BLOCK


def round_bytes(text: TextConfig, sequences: int, window: int, context: int) -> int:
    """Bytes that decode rounds keep of so many sequences: counts of ids, page tables, drafts."""
    pages = 16 * -(-(context + 2 * window) // (16 * _PAGE))
    lane = 4 * text.vocab_rows + 8 * (pages + window)
    if window > 1:
        # What a drafter keeps between rounds: a last state, and rows that it takes in later.
        lane += _WIDE * text.hidden * (1 + _BEHIND) + 8 * _BEHIND
    return sequences * lane


def graph_bytes(text: TextConfig, sequences: int, window: int, context: int) -> int:
    """Bytes of the memory that captured rounds share, and of the graphs themselves."""
    rows = min(sequences * window, _ROUND_ROWS)
    attention = text.attention
    splits = -(-context // _SPLIT)
    partial = min(rows * attention.query_width * splits * _WIDE, _PARTIAL_BYTES)
    drawn = rows * (text.vocab_rows * (2 + _WIDE) + _DRAW_BYTES)
    layer = rows * (_feed_forward_row(text) + 8 * text.hidden * _WIDE)
    graphs = min(sequences * _WINDOWS, _GRAPHS) * _GRAPH_BYTES
    return partial + drawn + layer + graphs


def _attention(text: TextConfig, sizes: PassSizes) -> int:
    attention = text.attention
    projected = 3 * attention.query_width + 2 * attention.kv_width
    row = projected * (sizes.activation_bytes + 2 * _WIDE) + 4 * attention.query_width * _WIDE
    # Keys and values of one sequence, decoded and once more padded to whole splits.
    cached = sizes.context * attention.kv_width * _WIDE * 9 // 2
    scores = min(sizes.rows * attention.query_heads * (sizes.context + 256), _SCORES) * _WIDE * 3
    return sizes.rows * row + cached + scores


def _gdn(text: TextConfig, sizes: PassSizes) -> int:
    gdn = text.gdn
    projected = 2 * (gdn.key_width + gdn.value_width)
    row = projected * (sizes.activation_bytes + 2 * _WIDE)
    row += gdn.conv_channels * (2 * sizes.activation_bytes + 3 * _WIDE)
    row += 4 * gdn.value_width * _WIDE
    head = 3 * 64 + 6 * (gdn.key_dim + gdn.value_dim)
    chunk = min(sizes.rows, _CHUNK_ROWS) * gdn.value_heads * head * _WIDE
    state = 4 * gdn.value_heads * gdn.key_dim * gdn.value_dim * _WIDE
    return sizes.rows * row + chunk + state


def _feed_forward_row(text: TextConfig) -> int:
    if text.moe is None:
        return (5 * text.mlp_width + 2 * text.hidden) * _WIDE
    moe = text.moe
    inner = max(moe.expert_width, moe.shared_width)
    return ((moe.top_k + 4) * text.hidden + 5 * inner + 5 * (moe.experts + 1)) * _WIDE


def encode_bytes(vision: VisionConfig, patches: int, activation_bytes: int) -> int:
    """Bytes that the vision tower needs to encode one image or video of so many patches."""
    pixels = vision.patch_row * (1 + 2 * _WIDE)
    block = 4 * vision.mlp_width * _WIDE + 4 * vision.hidden * activation_bytes
    mixer = 3 * vision.hidden * (activation_bytes + 3 * _WIDE) + 4 * vision.hidden * _WIDE
    scores = min(patches * patches * vision.heads, _SCORES) * _WIDE * 2
    return patches * max(pixels, block, mixer) + scores + _DECODED_BLOCK


def media_bytes(config: ModelConfig, patches: int, activation_bytes: int) -> int:
    """Bytes of the rows that stand for so many patches in the text model."""
    assert config.vision is not None
    rows = patches // config.vision.merge**2
    return rows * config.text.hidden * activation_bytes
