"""Names, shapes and stored formats of every object of a Qwen3.6 artifact, in file order."""

from collections.abc import Iterator, Mapping, Sequence

from ninfer.models.config import (
    Dflash2Config,
    DflashConfig,
    ModelConfig,
    MoeSizes,
    TextConfig,
    VisionConfig,
)
from ninfer.models.inventory import ObjectSpec, ResourceSpec, TensorSpec
from ninfer.models.qwen3_6.recipe import Parent, Recipe, attention_rows, gdn_rows

FRONTEND_RESOURCES = (
    "frontend/tokenizer.json",
    "frontend/tokenizer_config.json",
    "frontend/chat_template.jinja",
    "frontend/generation_config.json",
    "frontend/preprocessor_config.json",
    "frontend/video_preprocessor_config.json",
)

# Drafters and the vision merger are kept at eight bits in every published recipe.
W8 = "W8G32_F16S"

# Ends the name of the scalar that an NVFP4 matrix has beside it: the divisor of its input.
DIVISOR = "input_scale_divisor"


def inventory(config: ModelConfig, recipe: Recipe) -> list[ObjectSpec]:
    """Every object of an artifact of this configuration, in the order of the published files."""
    text = config.text
    specs: list[ObjectSpec] = [ResourceSpec(name) for name in FRONTEND_RESOURCES]
    specs.append(
        TensorSpec("text/token_embedding", (text.vocab_rows, text.hidden), recipe.embedding)
    )
    for layer in range(text.layers):
        specs.extend(_text_layer(text, recipe, layer))
    specs.append(_norm("text/final_norm", text.hidden))
    specs.append(TensorSpec("text/output_head", (text.vocab_rows, text.hidden), recipe.head))
    if config.draft_head_rows:
        rows = config.draft_head_rows
        specs.append(TensorSpec("text/draft_head", (rows, text.hidden), "Q4G64_F16S"))
        specs.append(TensorSpec("text/draft_head_token_ids", (rows,), "I32"))
    if config.mtp:
        specs.extend(_mtp(text))
    if config.vision:
        specs.extend(_vision(config.vision))
    if config.dflash:
        specs.extend(_dflash(config.dflash, text.hidden))
    if config.dflash2:
        specs.extend(_dflash2(config.dflash2, text))
    return specs


def _norm(name: str, width: int) -> TensorSpec:
    return TensorSpec(name, (width,), "BF16")


def _matrix(name: str, shape: tuple[int, int], fmt: str, site: str) -> Iterator[TensorSpec]:
    """A matrix of the text model and, when it is NVFP4, the divisor of its input at `site`."""
    yield TensorSpec(name, shape, fmt)
    if fmt == "NVFP4":
        yield TensorSpec(f"{site}/{DIVISOR}", (), "FP32")


def _parents(
    prefix: str, parents: Sequence[Parent], rows: Mapping[str, int], columns: int
) -> Iterator[TensorSpec]:
    for parent in parents:
        height = sum(rows[part] for part in parent.parts)
        name, site = f"{prefix}/{parent.name}", f"{prefix}/input_projection"
        yield from _matrix(name, (height, columns), parent.format, site)


def _text_layer(text: TextConfig, recipe: Recipe, layer: int) -> Iterator[ObjectSpec]:
    prefix = f"text/layers/{layer}"
    yield _norm(f"{prefix}/input_norm", text.hidden)
    if text.is_attention(layer):
        output = recipe.format_of("attention_output", layer)
        parents = recipe.parents("attention", layer)
        yield from _attention(f"{prefix}/attention", text, parents, output)
    else:
        yield from _gdn(f"{prefix}/gdn", text, recipe, layer)
    yield _norm(f"{prefix}/post_attention_norm", text.hidden)
    if text.moe:
        formats = (
            recipe.format_of("routed_gate_up", layer),
            recipe.format_of("routed_down", layer),
        )
        yield from _moe(f"{prefix}/moe", text.moe, text.hidden, formats)
    else:
        formats = (recipe.format_of("mlp_gate_up", layer), recipe.format_of("mlp_down", layer))
        yield from _mlp(f"{prefix}/mlp", text, formats)


def _attention(
    prefix: str, text: TextConfig, parents: Sequence[Parent], output: str
) -> Iterator[TensorSpec]:
    yield from _parents(prefix, parents, attention_rows(text.attention), text.hidden)
    yield _norm(f"{prefix}/query_norm", text.attention.head_dim)
    yield _norm(f"{prefix}/key_norm", text.attention.head_dim)
    shape = (text.hidden, text.attention.query_width)
    yield from _matrix(f"{prefix}/output", shape, output, f"{prefix}/output_projection")


def _gdn(prefix: str, text: TextConfig, recipe: Recipe, layer: int) -> Iterator[TensorSpec]:
    sizes, rows = text.gdn, gdn_rows(text.gdn)
    yield TensorSpec(f"{prefix}/a_log", (sizes.value_heads,), "FP32")
    yield TensorSpec(f"{prefix}/dt_bias", (sizes.value_heads,), "FP32")
    yield TensorSpec(f"{prefix}/convolution", (sizes.conv_width, sizes.conv_channels), "BF16")
    yield from _parents(prefix, recipe.parents("gdn_gates", layer), rows, text.hidden)
    yield from _parents(prefix, recipe.parents("gdn", layer), rows, text.hidden)
    yield _norm(f"{prefix}/norm", sizes.value_dim)
    shape, output = (text.hidden, sizes.value_width), recipe.format_of("gdn_output", layer)
    yield from _matrix(f"{prefix}/output", shape, output, f"{prefix}/output_projection")


def _mlp(prefix: str, text: TextConfig, formats: tuple[str, str]) -> Iterator[TensorSpec]:
    gate_up, down = (2 * text.mlp_width, text.hidden), (text.hidden, text.mlp_width)
    yield from _matrix(f"{prefix}/gate_up", gate_up, formats[0], f"{prefix}/gate_up_projection")
    yield from _matrix(f"{prefix}/down", down, formats[1], f"{prefix}/down_projection")


def _moe(prefix: str, moe: MoeSizes, hidden: int, formats: tuple[str, str]) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{prefix}/router_shared_gate", (moe.experts + 1, hidden), "BF16")
    gate_up_rows = moe.experts * 2 * moe.expert_width
    yield TensorSpec(f"{prefix}/routed_gate_up", (gate_up_rows, hidden), formats[0])
    yield TensorSpec(f"{prefix}/routed_down", (moe.experts * hidden, moe.expert_width), formats[1])
    yield TensorSpec(f"{prefix}/shared_gate_up", (2 * moe.shared_width, hidden), W8)
    yield TensorSpec(f"{prefix}/shared_down", (hidden, moe.shared_width), W8)


def _mtp(text: TextConfig) -> Iterator[TensorSpec]:
    yield TensorSpec("mtp/input_projection", (text.hidden, 2 * text.hidden), W8)
    yield _norm("mtp/embedding_norm", text.hidden)
    yield _norm("mtp/hidden_norm", text.hidden)
    yield _norm("mtp/layer/input_norm", text.hidden)
    fused = Parent("query_key_gate_value", ("query", "key", "gate", "value"), W8)
    yield from _attention("mtp/layer/attention", text, (fused,), W8)
    yield _norm("mtp/layer/post_attention_norm", text.hidden)
    if text.moe:
        yield from _moe("mtp/layer/moe", text.moe, text.hidden, (W8, W8))
    else:
        yield from _mlp("mtp/layer/mlp", text, (W8, W8))
    yield _norm("mtp/final_norm", text.hidden)


def _vision(vision: VisionConfig) -> Iterator[TensorSpec]:
    width = vision.hidden
    yield TensorSpec("vision/patch_embedding", (width, vision.patch_row), "Q6G64_F16S")
    yield _norm("vision/patch_embedding_bias", width)
    yield TensorSpec("vision/position_embedding", (vision.positions, width), "BF16")
    for block in range(vision.depth):
        yield from _vision_block(f"vision/layers/{block}", vision)
    merged = vision.merge_width
    yield TensorSpec("vision/merger/fc1", (merged, merged), W8)
    yield _norm("vision/merger/fc1_bias", merged)
    yield TensorSpec("vision/merger/fc2", (vision.output, merged), W8)
    yield _norm("vision/merger/fc2_bias", vision.output)
    yield _norm("vision/merger/norm/weight", width)
    yield _norm("vision/merger/norm/bias", width)


def _vision_block(prefix: str, vision: VisionConfig) -> Iterator[TensorSpec]:
    width, mlp = vision.hidden, vision.mlp_width
    matrices = (
        ("attention/qkv", (3 * width, width), "Q4G64_F16S"),
        ("attention/output", (width, width), "Q5G64_F16S"),
        ("mlp/fc1", (mlp, width), "Q4G64_F16S"),
        ("mlp/fc2", (width, mlp), "Q5G64_F16S"),
    )
    for name, shape, fmt in matrices:
        yield TensorSpec(f"{prefix}/{name}", shape, fmt)
        yield _norm(f"{prefix}/{name}_bias", shape[0])
    for norm in ("norm1", "norm2"):
        yield _norm(f"{prefix}/{norm}/weight", width)
        yield _norm(f"{prefix}/{norm}/bias", width)


def _dflash(dflash: DflashConfig, hidden: int) -> Iterator[TensorSpec]:
    query = dflash.query_heads * dflash.head_dim
    kv = dflash.kv_heads * dflash.head_dim
    features = len(dflash.target_layers) * hidden
    yield TensorSpec("dflash/feature_projection", (hidden, features), W8)
    yield _norm("dflash/context_norm", hidden)
    for layer in range(dflash.layers):
        prefix = f"dflash/layers/{layer}"
        yield _norm(f"{prefix}/input_norm", hidden)
        yield TensorSpec(f"{prefix}/attention/query_key_value", (query + 2 * kv, hidden), W8)
        yield _norm(f"{prefix}/attention/query_norm", dflash.head_dim)
        yield _norm(f"{prefix}/attention/key_norm", dflash.head_dim)
        yield TensorSpec(f"{prefix}/attention/output", (hidden, query), W8)
        yield _norm(f"{prefix}/post_attention_norm", hidden)
        yield TensorSpec(f"{prefix}/mlp/gate_up", (2 * dflash.mlp_width, hidden), W8)
        yield TensorSpec(f"{prefix}/mlp/down", (hidden, dflash.mlp_width), W8)
    yield _norm("dflash/final_norm", hidden)


def _dflash2(drafter: Dflash2Config, text: TextConfig) -> Iterator[TensorSpec]:
    query, kv = drafter.query_heads * drafter.head_dim, drafter.kv_heads * drafter.head_dim
    hidden, rank = text.hidden, drafter.selector_rank
    features = len(drafter.target_layers) * hidden
    yield TensorSpec("dflash2/feature_projection", (hidden, features), W8)
    yield _norm("dflash2/context_norm", hidden)
    for layer in range(drafter.layers):
        prefix = f"dflash2/layers/{layer}"
        yield _norm(f"{prefix}/input_norm", hidden)
        yield from _dynamic_conv(f"{prefix}/attention_conv", drafter, hidden)
        yield TensorSpec(f"{prefix}/attention/query_key_value", (query + 2 * kv, hidden), W8)
        yield _norm(f"{prefix}/attention/query_norm", drafter.head_dim)
        yield _norm(f"{prefix}/attention/key_norm", drafter.head_dim)
        yield TensorSpec(f"{prefix}/attention/output", (hidden, query), W8)
        yield _norm(f"{prefix}/post_attention_norm", hidden)
        yield from _dynamic_conv(f"{prefix}/mlp_conv", drafter, hidden)
        yield TensorSpec(f"{prefix}/mlp/gate_up", (2 * drafter.mlp_width, hidden), W8)
        yield TensorSpec(f"{prefix}/mlp/down", (hidden, drafter.mlp_width), W8)
    yield _norm("dflash2/final_norm", hidden)
    selector = "dflash2/candidate_selector"
    yield TensorSpec(f"{selector}/hidden_projection", (rank, hidden), "BF16")
    yield TensorSpec(f"{selector}/predecessor_codebook", (text.vocab_rows, rank), "BF16")
    yield TensorSpec(f"{selector}/successor_codebook", (text.vocab_rows, rank), "BF16")


def _dynamic_conv(prefix: str, drafter: Dflash2Config, hidden: int) -> Iterator[TensorSpec]:
    """Two convolutions, one on each side of a mixer: fixed kernels and rows that adjust them."""
    kernels = (2, drafter.conv_taps)
    rows = kernels[0] * kernels[1] * (hidden // drafter.conv_group)
    yield TensorSpec(f"{prefix}/base_kernel", (*kernels, hidden), "BF16")
    yield TensorSpec(f"{prefix}/kernel_projection", (rows, hidden), "BF16")
