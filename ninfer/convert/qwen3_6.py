"""Where the objects of a Qwen3.6 text decoder and its MTP layer come from in a checkpoint.

Names are those of the published Hugging Face checkpoints.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from ninfer.convert.qwen3_6_parts import drafter_sources, vision_sources
from ninfer.convert.source_map import (
    DraftHead,
    DraftIds,
    InputDivisor,
    ObjectSource,
    Origin,
    Rows,
    Stack,
    every,
    span,
    transposed,
    whole,
)
from ninfer.models.config import ModelConfig, MoeSizes, TextConfig
from ninfer.models.qwen3_6.recipe import Parent, Recipe

Named = tuple[str, ObjectSource]
# Whether some checkpoint holds a tensor of this name.
Exists = Callable[[str], bool]

LAYERS = "model.language_model.layers"
HEAD = "lm_head.weight"
_MTP_PARENT = Parent("query_key_gate_value", ("query", "key", "gate", "value"), "")


def source_map(config: ModelConfig, recipe: Recipe, exists: Exists) -> dict[str, ObjectSource]:
    """The source of every tensor object of an artifact, by object name.

    Checkpoints hold the experts of a layer in one tensor or in one tensor each, which `exists`
    tells. Divisors of inputs are listed for every matrix; only NVFP4 ones have them stored.
    """
    text = config.text
    table = (text.vocab_rows, text.hidden)
    found = dict(_text(text, recipe, exists))
    if config.draft_head_rows:
        found["text/draft_head"] = DraftHead(whole(HEAD, *table))
        found["text/draft_head_token_ids"] = DraftIds()
    if config.mtp:
        found.update(_mtp(text, exists))
    if config.vision:
        found.update(vision_sources(config.vision))
    found.update(drafter_sources(config, exists))
    return found


def _text(text: TextConfig, recipe: Recipe, exists: Exists) -> Iterator[Named]:
    table = (text.vocab_rows, text.hidden)
    yield "text/token_embedding", _one("text", "model.language_model.embed_tokens.weight", *table)
    for layer in range(text.layers):
        yield from _text_layer(text, recipe, layer, exists)
    yield "text/final_norm", _one("text", "model.language_model.norm.weight", text.hidden)
    yield "text/output_head", _one("text", HEAD, *table)


def _one(origin: Origin, tensor: str, *shape: int) -> Stack:
    return Stack((whole(tensor, *shape),), origin)


def _text_layer(text: TextConfig, recipe: Recipe, layer: int, exists: Exists) -> Iterator[Named]:
    prefix, source = f"text/layers/{layer}", f"{LAYERS}.{layer}"
    yield from _norms(prefix, source, text.hidden, "text")
    if text.is_attention(layer):
        parents = recipe.parents("attention", layer)
        yield from _attention(prefix, source, text, parents, "text")
    else:
        parents = (*recipe.parents("gdn_gates", layer), *recipe.parents("gdn", layer))
        yield from _gdn(f"{prefix}/gdn", f"{source}.linear_attn", text, parents)
    yield from _feed_forward(prefix, source, text, "text", exists)


def _norms(prefix: str, source: str, hidden: int, origin: Origin) -> Iterator[Named]:
    yield f"{prefix}/input_norm", _one(origin, f"{source}.input_layernorm.weight", hidden)
    name = f"{source}.post_attention_layernorm.weight"
    yield f"{prefix}/post_attention_norm", _one(origin, name, hidden)


def _fused(
    prefix: str, parents: Sequence[Parent], parts: Mapping[str, Rows], origin: Origin
) -> Iterator[Named]:
    for parent in parents:
        pieces = tuple(parts[part] for part in parent.parts)
        yield f"{prefix}/{parent.name}", Stack(pieces, origin)
        tensors = tuple(dict.fromkeys(piece.tensor for piece in pieces))
        yield _divisor(f"{prefix}/input_projection", tensors)


def _divisor(site: str, tensors: tuple[str, ...]) -> Named:
    return f"{site}/input_scale_divisor", InputDivisor(tensors, "text")


def _attention(
    prefix: str, source: str, text: TextConfig, parents: Sequence[Parent], origin: Origin
) -> Iterator[Named]:
    sizes, source = text.attention, f"{source}.self_attn"
    # Each head of the query projection has its query rows and then its gate rows.
    head, both = sizes.head_dim, (2 * sizes.query_width, text.hidden)
    parts = {
        "query": every(f"{source}.q_proj.weight", both, 2 * head, 0, head),
        "gate": every(f"{source}.q_proj.weight", both, 2 * head, head, head),
        "key": whole(f"{source}.k_proj.weight", sizes.kv_width, text.hidden),
        "value": whole(f"{source}.v_proj.weight", sizes.kv_width, text.hidden),
    }
    prefix = f"{prefix}/attention"
    yield from _fused(prefix, parents, parts, origin)
    yield f"{prefix}/query_norm", _one(origin, f"{source}.q_norm.weight", head)
    yield f"{prefix}/key_norm", _one(origin, f"{source}.k_norm.weight", head)
    output = f"{source}.o_proj.weight"
    yield f"{prefix}/output", _one(origin, output, text.hidden, sizes.query_width)
    yield _divisor(f"{prefix}/output_projection", (output,))


def _gdn(prefix: str, source: str, text: TextConfig, parents: Sequence[Parent]) -> Iterator[Named]:
    sizes, hidden = text.gdn, text.hidden
    fused, shape = f"{source}.in_proj_qkv.weight", (sizes.conv_channels, hidden)
    key, value, heads = sizes.key_width, sizes.value_width, sizes.value_heads
    parts = {
        "query": span(fused, shape, 0, key),
        "key": span(fused, shape, key, key),
        "value": span(fused, shape, 2 * key, value),
        "z": whole(f"{source}.in_proj_z.weight", value, hidden),
        "a": whole(f"{source}.in_proj_a.weight", heads, hidden),
        "b": whole(f"{source}.in_proj_b.weight", heads, hidden),
    }
    yield f"{prefix}/a_log", _one("text", f"{source}.A_log", heads)
    yield f"{prefix}/dt_bias", _one("text", f"{source}.dt_bias", heads)
    taps = transposed(f"{source}.conv1d.weight", sizes.conv_channels, 1, sizes.conv_width)
    yield f"{prefix}/convolution", Stack((taps,), "text")
    yield from _fused(prefix, parents, parts, "text")
    yield f"{prefix}/norm", _one("text", f"{source}.norm.weight", sizes.value_dim)
    output = f"{source}.out_proj.weight"
    yield f"{prefix}/output", _one("text", output, hidden, value)
    yield _divisor(f"{prefix}/output_projection", (output,))


def _feed_forward(
    prefix: str, source: str, text: TextConfig, origin: Origin, exists: Exists
) -> Iterator[Named]:
    source = f"{source}.mlp"
    if text.moe:
        yield from _moe(f"{prefix}/moe", source, text.moe, text.hidden, origin, exists)
        return
    prefix, shape = f"{prefix}/mlp", (text.mlp_width, text.hidden)
    gate, up, down = (f"{source}.{part}_proj.weight" for part in ("gate", "up", "down"))
    yield f"{prefix}/gate_up", Stack((whole(gate, *shape), whole(up, *shape)), origin)
    yield _divisor(f"{prefix}/gate_up_projection", (gate, up))
    yield f"{prefix}/down", _one(origin, down, text.hidden, text.mlp_width)
    yield _divisor(f"{prefix}/down_projection", (down,))


def _moe(
    prefix: str, source: str, moe: MoeSizes, hidden: int, origin: Origin, exists: Exists
) -> Iterator[Named]:
    router = whole(f"{source}.gate.weight", moe.experts, hidden)
    score = whole(f"{source}.shared_expert_gate.weight", 1, hidden)
    yield f"{prefix}/router_shared_gate", Stack((router, score), origin)
    gate_up, down = _experts(f"{source}.experts", moe, hidden, exists)
    yield f"{prefix}/routed_gate_up", Stack(gate_up, origin)
    yield f"{prefix}/routed_down", Stack(down, origin)
    shared, shape = f"{source}.shared_expert", (moe.shared_width, hidden)
    pair = tuple(whole(f"{shared}.{part}_proj.weight", *shape) for part in ("gate", "up"))
    yield f"{prefix}/shared_gate_up", Stack(pair, origin)
    yield (
        f"{prefix}/shared_down",
        _one(origin, f"{shared}.down_proj.weight", hidden, moe.shared_width),
    )


def _experts(
    source: str, moe: MoeSizes, hidden: int, exists: Exists
) -> tuple[tuple[Rows, ...], tuple[Rows, ...]]:
    """Pieces of the routed gate-up rows and of the routed down rows, expert by expert."""
    count, width = moe.experts, moe.expert_width
    if not exists(f"{source}.0.gate_proj.weight"):
        gate_up = whole(f"{source}.gate_up_proj", count, 2 * width, hidden)
        return (gate_up,), (whole(f"{source}.down_proj", count, hidden, width),)
    each = [f"{source}.{expert}" for expert in range(count)]
    return (
        tuple(
            whole(f"{expert}.{part}_proj.weight", width, hidden)
            for expert in each
            for part in ("gate", "up")
        ),
        tuple(whole(f"{expert}.down_proj.weight", hidden, width) for expert in each),
    )


def _mtp(text: TextConfig, exists: Exists) -> Iterator[Named]:
    hidden, layer = text.hidden, "mtp.layers.0"
    yield "mtp/input_projection", _one("other", "mtp.fc.weight", hidden, 2 * hidden)
    yield "mtp/embedding_norm", _one("other", "mtp.pre_fc_norm_embedding.weight", hidden)
    yield "mtp/hidden_norm", _one("other", "mtp.pre_fc_norm_hidden.weight", hidden)
    yield from _norms("mtp/layer", layer, hidden, "other")
    yield from _attention("mtp/layer", layer, text, (_MTP_PARENT,), "other")
    yield from _feed_forward("mtp/layer", layer, text, "other", exists)
    yield "mtp/final_norm", _one("other", "mtp.norm.weight", hidden)
