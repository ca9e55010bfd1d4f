"""Quantised checkpoints: codes, scales and divisors arrive unchanged, in our row order."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from checkpoints import (
    DRAFT_ROWS,
    HEAD_DIM,
    HEADS,
    Made,
    all_tensors,
    random_tensors,
    rewrite,
    write_text_files,
)
from converted_logits import artifact_logits
from torch import Tensor

from ninfer.artifact import Artifact, open_artifact
from ninfer.convert import ConvertOptions, convert
from ninfer.errors import CheckpointError
from ninfer.formats import fp4, fp8, quantise
from ninfer.formats.swizzle import scale_position

LAYERS = 28  # the recipe keeps attention in bfloat16 up to layer 23
PREFIX = "model.language_model.layers"
MATRICES = {
    "self_attn": (("q_proj", "k_proj", "v_proj"), ("o_proj",)),
    "linear_attn": (("in_proj_qkv", "in_proj_z"), ("out_proj",)),
    "mlp": (("gate_proj", "up_proj"), ("down_proj",)),
}


def groups(layer: int) -> list[tuple[str, ...]]:
    """Weights of one layer that share their divisors."""
    mixer = "self_attn" if layer % 4 == 3 else "linear_attn"
    return [
        tuple(f"{PREFIX}.{layer}.{part}.{name}.weight" for name in names)
        for part in (mixer, "mlp")
        for names in MATRICES[part]
    ]


def nvfp4_fields(name: str, shape: torch.Size, number: float) -> dict[str, Tensor]:
    """Random codes and legal scales of one matrix; `number` makes its divisors."""
    rows, columns = shape
    generator = torch.Generator().manual_seed(len(name) + rows)
    stem = name.removesuffix("weight")
    words = torch.randint(0x20, 0x60, (rows, columns // 16), generator=generator)
    return {
        f"{name}_packed": torch.randint(
            0, 256, (rows, columns // 2), generator=generator, dtype=torch.uint8
        ),
        f"{name}_scale": words.to(torch.uint8).view(torch.float8_e4m3fn),
        f"{name}_global_scale": torch.tensor([number]),
        f"{stem}input_global_scale": torch.tensor([2 * number]),
    }


def fp8_fields(name: str, shape: torch.Size) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(len(name))
    words = torch.randint(0, 0x7F, shape, generator=generator, dtype=torch.uint8)
    words |= torch.randint(0, 2, shape, generator=generator, dtype=torch.uint8) << 7
    scales = torch.rand(shape[0], 1, generator=generator).add(0.1).to(torch.bfloat16)
    return {name: words.view(torch.float8_e4m3fn), f"{name}_scale": scales}


@dataclass
class Pair:
    """A quantised checkpoint of the text model and the whole one that it was made from."""

    main: dict[str, Tensor]
    base: dict[str, Tensor]
    options: ConvertOptions

    def convert(self) -> Artifact:
        assert self.options.source and self.options.base_source and self.options.output
        rewrite(self.options.source, self.main)
        rewrite(self.options.base_source, self.base)
        convert(self.options)
        return open_artifact(self.options.output)


def pair(dense: Made, folder: Path, layers: int, **changes: object) -> Pair:
    main, base = folder / "main", folder / "base"
    main.mkdir()
    base.mkdir()
    write_text_files(base)
    config = (dense.folder / "config.json").read_text()
    (base / "config.json").write_text(
        config.replace('"num_hidden_layers": 4', f'"num_hidden_layers": {layers}').replace(
            '"layer_types"', '"full_attention_interval": 4, "ignored"'
        )
    )
    tensors = {
        name: value for name, value in all_tensors(dense.folder).items() if ".layers." not in name
    }
    tensors |= {n: v for n, v in all_tensors(dense.folder).items() if n.startswith("mtp.")}
    for name, value in all_tensors(dense.folder).items():
        if name.startswith(f"{PREFIX}."):
            index, rest = name.removeprefix(f"{PREFIX}.").split(".", 1)
            for layer in range(int(index), layers, 4):
                tensors[f"{PREFIX}.{layer}.{rest}"] = value.clone()
    options = replace(
        dense.options,
        target="small/nvfp4",
        source=main,
        base_source=base,
        output=folder / "out.ninfer",
        **changes,
    )
    text = ("model.language_model.", "lm_head.")
    return Pair({n: v for n, v in tensors.items() if n.startswith(text)}, tensors, options)


@pytest.fixture
def nvfp4(dense: Made, tmp_path: Path) -> Pair:
    """28 layers as the NVFP4 form of Qwen3.6-27B has them."""
    made = pair(dense, tmp_path, LAYERS)
    for layer in range(LAYERS):
        for index, names in enumerate(groups(layer)):
            bf16 = (
                (index == 0 and layer % 4 == 3 and layer <= 23)
                or (index == 1 and layer in (3, 7))
                or (index == 1 and layer == 4)
            )
            for name in () if bf16 else names:
                weight = made.main.pop(name)
                made.main |= nvfp4_fields(name, weight.shape, 10.0 * layer + index + 1)
    return made


@pytest.fixture
def fp8_pair(dense: Made, tmp_path: Path) -> Pair:
    """Four layers as the NVFP4 form of Qwen3.8-27B has them: mixers in FP8, MLPs in NVFP4."""
    made = pair(dense, tmp_path, 4, generation="qwen3.8")
    for layer in range(4):
        for index, names in enumerate(groups(layer)):
            for name in names:
                shape = made.main.pop(name).shape
                fields = nvfp4_fields(name, shape, index + 0.5) if index > 1 else None
                made.main |= fields or fp8_fields(name, shape)
    made.main[f"{PREFIX}.3.self_attn.k_scale"] = torch.ones(1)
    return made


def attention_rows(part: Callable[[str], Tensor]) -> Tensor:
    """Query, key, gate and value rows of a field, gathered one by one."""
    fused, head = part("q_proj"), HEAD_DIM
    at = [h * 2 * head + i for h in range(HEADS) for i in range(head)]
    query = torch.stack([fused[i] for i in at])
    gate = torch.stack([fused[i + head] for i in at])
    return torch.cat([query, part("k_proj"), gate, part("v_proj")])


def test_nvfp4_attention_keeps_its_fields(nvfp4: Pair) -> None:
    def field(suffix: str) -> Tensor:
        source = f"{PREFIX}.27.self_attn"
        return attention_rows(
            lambda part: nvfp4.main[f"{source}.{part}.weight{suffix}"].view(torch.uint8)
        )

    with nvfp4.convert() as artifact:
        stored = artifact.tensor("text/layers/27/attention/query_key_gate_value")
        divisor = artifact.tensor("text/layers/27/attention/input_projection/input_scale_divisor")
    assert torch.equal(stored.codes, field("_packed"))
    scales = field("_scale")
    columns = scales.shape[1]
    for row in range(0, scales.shape[0], 37):
        for column in range(columns):
            place = scale_position(row, column, columns)
            assert stored.scales[place] == scales[row, column]
    assert stored.divisor == 271.0 and divisor.shape == () and float(divisor) == 542.0


def test_nvfp4_recurrent_layers_keep_their_fields(nvfp4: Pair) -> None:
    source = f"{PREFIX}.1.linear_attn"
    names = [f"{source}.in_proj_qkv.weight", f"{source}.in_proj_z.weight"]
    with nvfp4.convert() as artifact:
        codes, scales = fp4.unpack(artifact.tensor("text/layers/1/gdn/query_key_value_z"))
        down = artifact.tensor("text/layers/5/mlp/down")
        site = artifact.tensor("text/layers/5/mlp/down_projection/input_scale_divisor")
    packed = torch.cat([nvfp4.main[f"{name}_packed"] for name in names])
    assert torch.equal(codes[:, 0::2], packed & 15) and torch.equal(codes[:, 1::2], packed >> 4)
    wanted = torch.cat([nvfp4.main[f"{name}_scale"].view(torch.uint8) for name in names])
    assert torch.equal(scales, wanted)
    assert down.divisor == 54.0 and float(site) == 108.0


def test_layers_outside_the_quantisation_are_copied(nvfp4: Pair) -> None:
    with nvfp4.convert() as artifact:
        fused = artifact.tensor("text/layers/7/attention/query_key_gate_value")
        output = artifact.tensor("text/layers/4/gdn/output")
        names = set(artifact.names)
    source = f"{PREFIX}.7.self_attn"
    assert torch.equal(fused, attention_rows(lambda part: nvfp4.main[f"{source}.{part}.weight"]))
    assert torch.equal(output, nvfp4.main[f"{PREFIX}.4.linear_attn.out_proj.weight"])
    assert "text/layers/7/attention/input_projection/input_scale_divisor" not in names
    assert "text/layers/27/attention/output_projection/input_scale_divisor" in names


def test_the_quantised_source_gives_the_text_and_the_base_the_rest(nvfp4: Pair) -> None:
    """The two checkpoints differ where both have a tensor: each must be asked for its own part."""
    nvfp4.main["model.language_model.norm.weight"] = torch.full((128,), 3.0).bfloat16()
    head = random_tensors({"lm_head.weight": (512, 128)}, seed=9)["lm_head.weight"]
    nvfp4.main["lm_head.weight"] = head
    with nvfp4.convert() as artifact:
        assert artifact.tensor("text/final_norm").eq(3).all()
        stored = artifact.tensor("text/output_head")
        draft = artifact.tensor("text/draft_head")
        ids = artifact.tensor("text/draft_head_token_ids").long()
    assert torch.equal(stored.base, quantise(head, "W8G32_F16S").base)
    base_rows = nvfp4.base["lm_head.weight"][ids]
    assert torch.equal(draft.base, quantise(base_rows, "Q4G64_F16S").base)
    assert len(ids) == DRAFT_ROWS


def test_fp8_matrices_keep_their_codes_and_scales(fp8_pair: Pair) -> None:
    source = f"{PREFIX}.3.self_attn"
    with fp8_pair.convert() as artifact:
        codes, scales = fp8.unpack(artifact.tensor("text/layers/3/attention/query_key_gate_value"))
        output = artifact.tensor("text/layers/0/gdn/output")
        gates = artifact.tensor("text/layers/0/gdn/a_b_projection")
        mlp = artifact.tensor("text/layers/3/mlp/gate_up")
    main = fp8_pair.main
    wanted = attention_rows(lambda part: main[f"{source}.{part}.weight"].view(torch.uint8))
    assert torch.equal(codes, wanted)
    rows = attention_rows(lambda part: main[f"{source}.{part}.weight_scale"])
    assert torch.equal(scales, rows.flatten())
    name = f"{PREFIX}.0.linear_attn.out_proj.weight"
    assert torch.equal(output.codes, main[name].view(torch.uint8))
    both = [main[f"{PREFIX}.0.linear_attn.in_proj_{part}.weight"] for part in "ab"]
    assert torch.equal(gates, torch.cat(both))
    assert mlp.divisor == 2.5


def test_embedding_and_head_are_encoded_to_fp8(fp8_pair: Pair) -> None:
    main = fp8_pair.main
    main["lm_head.weight"] *= 3
    with fp8_pair.convert() as artifact:
        head, table = artifact.tensor("text/output_head"), artifact.tensor("text/token_embedding")
    assert head.format == table.format == "FP8_E4M3FN_ROW_BF16S"
    assert torch.equal(head.codes, fp8.quantise(main["lm_head.weight"]).codes)
    embedding = main["model.language_model.embed_tokens.weight"]
    assert torch.equal(table.scales, fp8.quantise(embedding).scales)


def set_words(name: str, word: int) -> Callable[[dict[str, Tensor]], object]:
    def edit(tensors: dict[str, Tensor]) -> None:
        tensors[name].view(torch.uint8)[5, 1] = word

    return edit


Q27 = f"{PREFIX}.27.self_attn.q_proj"
GATE = f"{PREFIX}.2.mlp.gate_proj"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda t: t.update({f"{GATE}.weight_global_scale": torch.tensor([5.0])}),
            r"gate_proj\.weight_global_scale' and .*up_proj\.weight_global_scale' hold 5\.0 and 23",
        ),
        (
            lambda t: t.update({f"{GATE}.input_global_scale": torch.tensor([5.0])}),
            r"gate_proj\.input_global_scale' and .* must be equal",
        ),
        (
            lambda t: t.update({f"{GATE}.weight_global_scale": torch.tensor([0.0])}),
            r"gate_proj\.weight_global_scale' in .* is 0\.0; a divisor must be finite and greater",
        ),
        (
            lambda t: t.update({f"{GATE}.input_global_scale": torch.tensor([float("nan")])}),
            r"gate_proj\.input_global_scale' in .* is nan",
        ),
        (
            lambda t: t.update({f"{GATE}.weight_global_scale": torch.ones(2)}),
            r"weight_global_scale' in .* has shape \[2\]; expected one number",
        ),
        (lambda t: t.pop(f"{Q27}.weight_packed"), r"q_proj\.weight_packed' is in no shard of"),
        (lambda t: t.pop(f"{Q27}.weight_scale"), r"q_proj\.weight_scale' is in no shard of"),
        (
            lambda t: t.update({f"{Q27}.weight_packed": torch.ones(512, 128).byte()}),
            r"q_proj\.weight_packed' in .* has shape \[512, 128\]; expected \[512, 64\]",
        ),
        (
            lambda t: t.update({f"{Q27}.weight_scale": torch.ones(512, 8).byte()}),
            r"q_proj\.weight_scale' in .* has dtype U8; expected F8_E4M3",
        ),
        (set_words(f"{Q27}.weight_scale", 0x7F), r"source of .*q_proj\.weight.*scale \[5, 1\]"),
        (set_words(f"{Q27}.weight_scale", 0x80), r"source of .*word 0x80"),
    ],
)
def test_bad_nvfp4_fields_are_named(
    nvfp4: Pair, edit: Callable[[dict[str, Tensor]], object], message: str
) -> None:
    edit(nvfp4.main)
    with pytest.raises(CheckpointError, match=message):
        nvfp4.convert()


O3 = f"{PREFIX}.3.self_attn.o_proj.weight"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda t: t.update({O3: torch.ones(128, 256).bfloat16()}),
            r"o_proj\.weight' in .* has dtype BF16; expected F8_E4M3",
        ),
        (
            lambda t: t.update({f"{O3}_scale": torch.ones(128).bfloat16()}),
            r"o_proj\.weight_scale' in .* has shape \[128\]; expected \[128, 1\]",
        ),
        (set_words(O3, 0x7F), r"source of .*o_proj\.weight.*code \[5, 1\] is NaN"),
        (
            lambda t: t[f"{O3}_scale"].view(-1).fill_(-1),
            r"source of .*o_proj\.weight.*scale \[0\] is -1",
        ),
    ],
)
def test_bad_fp8_fields_are_named(
    fp8_pair: Pair, edit: Callable[[dict[str, Tensor]], object], message: str
) -> None:
    edit(fp8_pair.main)
    with pytest.raises(CheckpointError, match=message):
        fp8_pair.convert()


def test_a_packed_weight_does_not_stand_in_for_a_plain_one(nvfp4: Pair, tmp_path: Path) -> None:
    rewrite(tmp_path / "main", nvfp4.main)
    for path in (tmp_path / "base").glob("*.json*"):
        (tmp_path / "main" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "main" / "chat_template.jinja").write_text("{{ 1 }}")
    options = replace(nvfp4.options, target="small/groupwise-int", base_source=None)
    with pytest.raises(CheckpointError, match=r"only its packed form is.*--base-source"):
        convert(options)


@pytest.mark.parametrize("fixture", ["nvfp4", "fp8_pair"])
def test_quantised_forms_load_and_give_numbers(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    made: Pair = request.getfixturevalue(fixture)
    made.convert().close()
    assert made.options.output is not None
    logits = artifact_logits(made.options.output, decoded=False, tokens=list(range(9)))
    assert logits.shape == (9, 512) and bool(logits.isfinite().all())
