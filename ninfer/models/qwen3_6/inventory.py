"""Names, shapes and stored formats of every object of a Qwen3.6 artifact, in file order."""

from collections.abc import Iterator, Mapping, Sequence

from ninfer.models.config import DflashConfig, ModelConfig, MoeSizes, TextConfig, VisionConfig
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
    return specs


def _norm(name: str, width: int) -> TensorSpec:
    return TensorSpec(name, (width,), "BF16")


def _parents(
    prefix: str, parents: Sequence[Parent], rows: Mapping[str, int], columns: int
) -> Iterator[TensorSpec]:
    for parent in parents:
        height = sum(rows[part] for part in parent.parts)
        yield TensorSpec(f"{prefix}/{parent.name}", (height, columns), parent.format)


def _text_layer(text: TextConfig, recipe: Recipe, layer: int) -> Iterator[ObjectSpec]:
    prefix = f"text/layers/{layer}"
    yield _norm(f"{prefix}/input_norm", text.hidden)
    if text.is_attention(layer):
        yield from _attention(f"{prefix}/attention", text, recipe.attention)
        yield _attention_output(f"{prefix}/attention", text, recipe.attention_output)
    else:
        yield from _gdn(f"{prefix}/gdn", text, recipe)
    yield _norm(f"{prefix}/post_attention_norm", text.hidden)
    if text.moe:
        down = recipe.routed_down_format(layer)
        yield from _moe(f"{prefix}/moe", text.moe, text.hidden, (recipe.routed_gate_up, down))
    else:
        yield from _mlp(f"{prefix}/mlp", text, (recipe.mlp_gate_up, recipe.mlp_down))


def _attention(prefix: str, text: TextConfig, parents: Sequence[Parent]) -> Iterator[TensorSpec]:
    yield from _parents(prefix, parents, attention_rows(text.attention), text.hidden)
    yield _norm(f"{prefix}/query_norm", text.attention.head_dim)
    yield _norm(f"{prefix}/key_norm", text.attention.head_dim)


def _attention_output(prefix: str, text: TextConfig, fmt: str) -> TensorSpec:
    return TensorSpec(f"{prefix}/output", (text.hidden, text.attention.query_width), fmt)


def _gdn(prefix: str, text: TextConfig, recipe: Recipe) -> Iterator[TensorSpec]:
    sizes, rows = text.gdn, gdn_rows(text.gdn)
    yield TensorSpec(f"{prefix}/a_log", (sizes.value_heads,), "FP32")
    yield TensorSpec(f"{prefix}/dt_bias", (sizes.value_heads,), "FP32")
    yield TensorSpec(f"{prefix}/convolution", (sizes.conv_width, sizes.conv_channels), "BF16")
    yield from _parents(prefix, recipe.gdn_gates, rows, text.hidden)
    yield from _parents(prefix, recipe.gdn, rows, text.hidden)
    yield _norm(f"{prefix}/norm", sizes.value_dim)
    yield TensorSpec(f"{prefix}/output", (text.hidden, sizes.value_width), recipe.gdn_output)


def _mlp(prefix: str, text: TextConfig, formats: tuple[str, str]) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{prefix}/gate_up", (2 * text.mlp_width, text.hidden), formats[0])
    yield TensorSpec(f"{prefix}/down", (text.hidden, text.mlp_width), formats[1])


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
    yield from _attention("mtp/layer/attention", text, (fused,))
    yield _attention_output("mtp/layer/attention", text, W8)
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
