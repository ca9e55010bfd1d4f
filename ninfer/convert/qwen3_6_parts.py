"""Where the objects of the vision tower and of the block drafters come from in a checkpoint."""

from collections.abc import Callable, Iterator

from ninfer.convert.source_map import ObjectSource, Stack, whole
from ninfer.models.config import Dflash2Config, DflashConfig, ModelConfig, VisionConfig

Named = tuple[str, ObjectSource]


def vision_sources(vision: VisionConfig) -> dict[str, ObjectSource]:
    """Sources of all objects below `vision/`."""
    width, row, source = vision.hidden, vision.patch_row, "model.visual"
    patch = (width, 3, vision.temporal_patch, vision.patch, vision.patch)
    stem = whole(f"{source}.patch_embed.proj.weight", *patch, columns=row)
    found: dict[str, ObjectSource] = {
        "vision/patch_embedding": Stack((stem,), "other"),
        "vision/patch_embedding_bias": _vision(f"{source}.patch_embed.proj.bias", width),
        "vision/position_embedding": _vision(f"{source}.pos_embed.weight", vision.positions, width),
    }
    for block in range(vision.depth):
        found.update(_block(f"vision/layers/{block}", f"{source}.blocks.{block}", vision))
    merged, merger = vision.merge_width, f"{source}.merger"
    for name, rows in (("fc1", merged), ("fc2", vision.output)):
        found.update(_affine(f"vision/merger/{name}", f"{merger}.linear_{name}", rows, merged))
    found.update(_layer_norm("vision/merger/norm", f"{merger}.norm", width))
    return found


def _vision(tensor: str, *shape: int) -> Stack:
    return Stack((whole(tensor, *shape),), "other")


def _affine(name: str, source: str, rows: int, columns: int) -> Iterator[Named]:
    yield name, _vision(f"{source}.weight", rows, columns)
    yield f"{name}_bias", _vision(f"{source}.bias", rows)


def _layer_norm(name: str, source: str, width: int) -> Iterator[Named]:
    yield f"{name}/weight", _vision(f"{source}.weight", width)
    yield f"{name}/bias", _vision(f"{source}.bias", width)


def _block(name: str, source: str, vision: VisionConfig) -> Iterator[Named]:
    width, mlp = vision.hidden, vision.mlp_width
    yield from _affine(f"{name}/attention/qkv", f"{source}.attn.qkv", 3 * width, width)
    yield from _affine(f"{name}/attention/output", f"{source}.attn.proj", width, width)
    yield from _affine(f"{name}/mlp/fc1", f"{source}.mlp.linear_fc1", mlp, width)
    yield from _affine(f"{name}/mlp/fc2", f"{source}.mlp.linear_fc2", width, mlp)
    for norm in ("norm1", "norm2"):
        yield from _layer_norm(f"{name}/{norm}", f"{source}.{norm}", width)


def drafter_sources(config: ModelConfig, exists: Callable[[str], bool]) -> dict[str, ObjectSource]:
    """Sources of all objects below `dflash/` and `dflash2/`.

    `exists` tells which spelling the selector's codebooks have.
    """
    found: dict[str, ObjectSource] = {}
    hidden = config.text.hidden
    if config.dflash:
        found.update(_drafter("dflash", config.dflash, hidden))
    if config.dflash2:
        found.update(_drafter("dflash2", config.dflash2, hidden))
        found.update(_dflash2(config.dflash2, hidden, config.text.vocab_rows, exists))
    return found


def _drafted(*pieces: tuple[str, tuple[int, ...]]) -> Stack:
    return Stack(tuple(whole(tensor, *shape) for tensor, shape in pieces), "drafter")


def _drafter(name: str, sizes: DflashConfig | Dflash2Config, hidden: int) -> Iterator[Named]:
    """What both drafters have."""
    features = len(sizes.target_layers) * hidden
    yield f"{name}/feature_projection", _drafted(("fc.weight", (hidden, features)))
    yield f"{name}/context_norm", _drafted(("hidden_norm.weight", (hidden,)))
    for layer in range(sizes.layers):
        yield from _drafter_layer(f"{name}/layers/{layer}", f"layers.{layer}", sizes, hidden)
    yield f"{name}/final_norm", _drafted(("norm.weight", (hidden,)))


def _drafter_layer(
    name: str, source: str, sizes: DflashConfig | Dflash2Config, hidden: int
) -> Iterator[Named]:
    attention, mlp = f"{source}.self_attn", f"{source}.mlp"
    query, kv = sizes.query_heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    parts = (("q", query), ("k", kv), ("v", kv))
    fused = [(f"{attention}.{part}_proj.weight", (rows, hidden)) for part, rows in parts]
    yield f"{name}/input_norm", _drafted((f"{source}.input_layernorm.weight", (hidden,)))
    yield f"{name}/attention/query_key_value", _drafted(*fused)
    for norm, part in (("query_norm", "q"), ("key_norm", "k")):
        weight = f"{attention}.{part}_norm.weight"
        yield f"{name}/attention/{norm}", _drafted((weight, (sizes.head_dim,)))
    yield f"{name}/attention/output", _drafted((f"{attention}.o_proj.weight", (hidden, query)))
    norm = f"{source}.post_attention_layernorm.weight"
    yield f"{name}/post_attention_norm", _drafted((norm, (hidden,)))
    wide = (sizes.mlp_width, hidden)
    pair = [(f"{mlp}.{part}_proj.weight", wide) for part in ("gate", "up")]
    yield f"{name}/mlp/gate_up", _drafted(*pair)
    yield f"{name}/mlp/down", _drafted((f"{mlp}.down_proj.weight", (hidden, sizes.mlp_width)))


def _dflash2(
    sizes: Dflash2Config, hidden: int, vocab_rows: int, exists: Callable[[str], bool]
) -> Iterator[Named]:
    sides, taps = 2, sizes.conv_taps
    rows = sides * taps * (hidden // sizes.conv_group)
    for layer in range(sizes.layers):
        for conv in ("attention_conv", "mlp_conv"):
            name, source = f"dflash2/layers/{layer}/{conv}", f"layers.{layer}.{conv}"
            kernel = (f"{source}.base_kernel", (sides, taps, hidden))
            yield f"{name}/base_kernel", _drafted(kernel)
            weight = f"{source}.kernel_projection.weight"
            yield f"{name}/kernel_projection", _drafted((weight, (rows, hidden)))
    selector = (
        ("hidden_projection", (sizes.selector_rank, hidden)),
        ("predecessor_codebook", (vocab_rows, sizes.selector_rank)),
        ("successor_codebook", (vocab_rows, sizes.selector_rank)),
    )
    for part, shape in selector:
        plain = f"candidate_selector.{part}"
        tensor = plain if exists(plain) else f"{plain}.weight"
        yield f"dflash2/candidate_selector/{part}", _drafted((tensor, shape))
