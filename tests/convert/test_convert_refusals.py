"""Sources that cannot be converted: one error that names tensor and file, and nothing written."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from checkpoints import HIDDEN, Made, add_shard, all_tensors, rewrite

from ninfer.convert import ConvertOptions, convert, dry_run
from ninfer.errors import CheckpointError, ConfigError, NInferError, UsageError

LAYER = "model.language_model.layers.0"
Edit = Callable[[dict[str, torch.Tensor]], object]


@pytest.fixture
def options(dense: Made, tmp_path: Path) -> ConvertOptions:
    """A conversion of a copy of the dense checkpoint that a test may damage."""
    folder = tmp_path / "copy"
    shutil.copytree(dense.folder, folder)
    return replace(dense.options, source=folder, output=tmp_path / "out.ninfer")


def refused(options: ConvertOptions, message: str, kind: type[NInferError] = CheckpointError):
    with pytest.raises(kind, match=message) as caught:
        convert(options)
    assert "\n" not in str(caught.value)
    assert options.output is not None and not options.output.exists()


def nan_at(name: str, value: float = float("nan")) -> Edit:
    def edit(tensors: dict[str, torch.Tensor]) -> None:
        tensors[name].view(-1)[3] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda t: t.pop(f"{LAYER}.mlp.up_proj.weight"),
            r"layers\.0\.mlp\.up_proj\.weight' is in no shard of .*copy",
        ),
        (lambda t: t.pop("lm_head.weight"), r"'lm_head\.weight' is in no shard"),
        (
            lambda t: [t.pop(name) for name in list(t) if name.startswith("mtp.")],
            r"'mtp\.fc\.weight' is in no shard of .*drops the MTP layer.*--base-source",
        ),
        (
            lambda t: t.update({f"{LAYER}.mlp.up_proj.weight": torch.zeros(256, 64).bfloat16()}),
            r"up_proj\.weight' in .*safetensors has shape \[256, 64\]; expected \[256, 128\]",
        ),
        (
            lambda t: t.update({f"{LAYER}.input_layernorm.weight": torch.zeros(HIDDEN)}),
            r"input_layernorm\.weight' in .* has dtype F32; expected BF16",
        ),
        (
            lambda t: t.update({f"{LAYER}.mlp.up_proj.weight": torch.ones(256, 128).int()}),
            r"up_proj\.weight' in .* has dtype I32; expected BF16 or F16 or F32",
        ),
        (
            lambda t: t.update({f"{LAYER}.mlp.other.weight": torch.zeros(2).bfloat16()}),
            r"layers\.0\.mlp\.other\.weight' in .*has no place in the target",
        ),
        (
            lambda t: t.update({f"{LAYER}.linear_attn.extra": torch.zeros(2).bfloat16()}),
            r"linear_attn\.extra' in .*has no place",
        ),
        (
            nan_at(f"{LAYER}.mlp.up_proj.weight"),
            r"mlp\.up_proj\.weight' in .*model\.safetensors holds a value that is not finite",
        ),
        (
            nan_at(f"{LAYER}.post_attention_layernorm.weight", float("-inf")),
            r"post_attention_layernorm\.weight' in .*not finite",
        ),
        (nan_at(f"{LAYER}.linear_attn.A_log"), r"A_log' in .*not finite"),
        (nan_at("lm_head.weight"), r"lm_head\.weight' in .*not finite"),
        (nan_at("model.visual.pos_embed.weight"), r"pos_embed\.weight' in .*not finite"),
    ],
    ids=[
        "missing",
        "no head",
        "no mtp",
        "shape",
        "dtype",
        "integers",
        "unknown module",
        "unknown leaf",
        "nan",
        "infinity",
        "nan decay",
        "nan head",
        "nan vision",
    ],
)
def test_bad_tensors_are_named(options: ConvertOptions, edit: Edit, message: str) -> None:
    assert options.source is not None
    tensors = all_tensors(options.source)
    edit(tensors)
    rewrite(options.source, tensors)
    refused(options, message)


def test_an_unused_tensor_outside_the_text_model_is_only_reported(options: ConvertOptions) -> None:
    assert options.source is not None
    add_shard(
        options.source, {"model.visual.extra.weight": torch.zeros(2).bfloat16()}, "x.safetensors"
    )
    assert convert(options).unused == ("model.visual.extra.weight",)


def first_shard(options: ConvertOptions) -> Path:
    assert options.source is not None
    return min(options.source.glob("*.safetensors"))


def test_a_missing_shard_is_named(options: ConvertOptions) -> None:
    shard = min(first_shard(options).parent.glob("model-00002*"))
    shard.unlink()
    refused(options, rf"{shard.name}: is named in model\.safetensors\.index\.json but is not there")


@pytest.mark.parametrize("keep", [0, 4, 100, 5000, -1])
def test_a_truncated_shard_is_named(options: ConvertOptions, keep: int) -> None:
    shard = min(first_shard(options).parent.glob("model-00003*"))
    data = shard.read_bytes()
    shard.write_bytes(data[:keep])
    refused(options, rf"{shard.name}: is not a whole safetensors file .*fetch it again")


def test_a_tensor_in_two_shards_is_refused(options: ConvertOptions) -> None:
    shard = first_shard(options)
    (shard.parent / "model.safetensors.index.json").unlink()
    shutil.copy(shard, shard.with_name("second.safetensors"))
    refused(options, r"tensor 'mtp.*' in .*second\.safetensors is also in .*\.safetensors")


def test_an_index_that_promises_too_much_is_refused(options: ConvertOptions) -> None:
    index = first_shard(options).with_name("model.safetensors.index.json")
    document = json.loads(index.read_text())
    document["weight_map"]["ghost.weight"] = first_shard(options).name
    index.write_text(json.dumps(document))
    refused(options, r"lacks tensor 'ghost\.weight' that model\.safetensors\.index\.json promises")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"weight_map": {}}', '{"weight_map": 3}'])
def test_a_broken_index_is_named(options: ConvertOptions, text: str) -> None:
    first_shard(options).with_name("model.safetensors.index.json").write_text(text)
    refused(options, r"model\.safetensors\.index\.json: (is not JSON|must hold|lacks)")


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
)
def test_a_missing_file_is_named(options: ConvertOptions, name: str) -> None:
    (first_shard(options).parent / name).unlink()
    refused(options, rf"{name}: (no such file|cannot be read: No such file)")


def edit_config(options: ConvertOptions, **values: object) -> None:
    path = first_shard(options).with_name("config.json")
    document = json.loads(path.read_text())
    document["text_config"].update(values)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_size": None}, r"text_config\.hidden_size is missing"),
        ({"num_attention_heads": 3}, "num_attention_heads 3 does not fit"),
        ({"layer_types": ["linear_attention"] * 4}, "has no full_attention layer"),
        (
            {"layer_types": ["full_attention", "linear_attention"] * 2},
            "does not repeat every 1 layers",
        ),
        ({"mtp_num_hidden_layers": 2}, "mtp_num_hidden_layers is 2"),
    ],
)
def test_a_bad_configuration_is_refused(
    options: ConvertOptions, values: dict[str, object], message: str
) -> None:
    # Newer files list the kinds of layers in place of their distance.
    edit_config(options, **{"full_attention_interval": None, **values})
    refused(options, message, NInferError)


def test_another_geometry_under_the_name_of_a_registered_model(options: ConvertOptions) -> None:
    options = replace(options, target="qwen3.6-27b/groupwise-int", draft_head_rows=None)
    refused(
        options,
        r"config\.json: text\.hidden is 128, not the 5120 of qwen3\.6-27b/groupwise-int",
        ConfigError,
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"draft_counts": None}, r"--draft-counts FILE is missing; the target has a draft head"),
        ({"draft_head_rows": None}, r"--draft-counts: the target has no draft head"),
        (
            {"target": "qwen3.6-27b/groupwise-int"},
            r"--draft-head-rows: the target qwen3\.6-27b/groupwise-int fixes it",
        ),
        ({"target": "qwen3.6-27b"}, r"--target qwen3\.6-27b: must be MODEL/WEIGHTS"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: ConvertOptions, change: dict[str, object], message: str
) -> None:
    refused(replace(options, **change), message, UsageError)


def test_an_unknown_weights_id_is_refused(options: ConvertOptions) -> None:
    refused(
        replace(options, target="small/int3"), r"weights id 'int3' is not supported", ConfigError
    )


def test_a_folder_without_weights_is_refused(options: ConvertOptions, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    refused(replace(options, source=empty), "no such folder")
    empty.mkdir()
    refused(replace(options, source=empty), r"holds no \.safetensors file")


@pytest.mark.parametrize(
    ("target", "resource_bytes", "size"),
    [
        ("qwen3.6-27b/groupwise-int", 12_833_536, 17_495_365_888),
        ("qwen3.6-27b/nvfp4", 12_833_536, 18_324_064_000),
        ("qwen3.6-35b-a3b/groupwise-int", 12_833_536, 22_783_246_080),
        ("qwen3.8-27b/groupwise-int", 12_837_376, 18_210_531_328),
        ("qwen3.8-27b/nvfp4", 12_837_376, 21_492_695_040),
    ],
)
def test_dry_runs_give_the_published_sizes(target: str, resource_bytes: int, size: int) -> None:
    planned = dry_run(ConvertOptions(target=target, resource_bytes=resource_bytes, dry_run=True))
    assert planned.file_size == size


def test_a_dry_run_with_a_source_is_the_size_of_the_file(dense: Made) -> None:
    planned = dry_run(replace(dense.options, dry_run=True))
    assert planned.file_size == dense.artifact.stat().st_size


def test_a_dry_run_of_unknown_sizes_is_refused() -> None:
    with pytest.raises(UsageError, match="needs --resource-bytes N or --source DIR"):
        dry_run(ConvertOptions(target="qwen3.6-27b/nvfp4", dry_run=True))
    with pytest.raises(UsageError, match="is not registered; give --source DIR"):
        dry_run(ConvertOptions(target="small/nvfp4", dry_run=True, resource_bytes=10))
