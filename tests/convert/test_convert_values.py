"""What converted artifacts hold: every object against transformers' weights, and their logits."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from checkpoints import (
    ADDRESSABLE,
    DRAFT_ROWS,
    EXPERTS,
    HEAD_DIM,
    HEADS,
    Made,
    all_tensors,
    fuse_experts,
    rewrite,
    write_text_files,
)
from converted_logits import TOKENS, artifact_logits
from torch import Tensor

from ninfer.artifact import open_artifact
from ninfer.convert import convert, dry_run
from ninfer.convert.draft_ids import choose_draft_ids, special_ids
from ninfer.formats import quantise
from ninfer.models import CONFIG_RESOURCE

Q4, Q5, Q6, W8 = "Q4G64_F16S", "Q5G64_F16S", "Q6G64_F16S", "W8G32_F16S"


def halves(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Query rows and gate rows of a query projection, head by head."""
    rows = weight.tolist()
    query, gate = [], []
    for head in range(HEADS):
        start = head * 2 * HEAD_DIM
        query += rows[start : start + HEAD_DIM]
        gate += rows[start + HEAD_DIM : start + 2 * HEAD_DIM]
    return torch.tensor(query), torch.tensor(gate)


def expected_dense(t: dict[str, Tensor]) -> dict[str, tuple[str, Tensor]]:
    """Format and values of objects of the dense artifact, from the tensors by name."""
    model = "model.language_model"
    query, gate = halves(t[f"{model}.layers.3.self_attn.q_proj.weight"])
    key = t[f"{model}.layers.3.self_attn.k_proj.weight"]
    value = t[f"{model}.layers.3.self_attn.v_proj.weight"]
    fused = t[f"{model}.layers.1.linear_attn.in_proj_qkv.weight"]
    z = t[f"{model}.layers.1.linear_attn.in_proj_z.weight"]
    mlp = f"{model}.layers.2.mlp"
    mtp_query, mtp_gate = halves(t["mtp.layers.0.self_attn.q_proj.weight"])
    mtp = "mtp.layers.0"
    return {
        "text/token_embedding": (Q6, t[f"{model}.embed_tokens.weight"]),
        "text/output_head": (Q6, t["lm_head.weight"]),
        "text/layers/3/attention/query_key": (Q4, torch.cat([query, key])),
        "text/layers/3/attention/gate_value": (Q5, torch.cat([gate, value])),
        "text/layers/3/attention/output": (Q5, t[f"{model}.layers.3.self_attn.o_proj.weight"]),
        "text/layers/1/gdn/query_key": (Q4, fused[:128]),
        "text/layers/1/gdn/value_z": (Q5, torch.cat([fused[128:], z])),
        "text/layers/2/mlp/gate_up": (
            Q4,
            torch.cat([t[f"{mlp}.gate_proj.weight"], t[f"{mlp}.up_proj.weight"]]),
        ),
        "mtp/input_projection": (W8, t["mtp.fc.weight"]),
        "mtp/layer/attention/query_key_gate_value": (
            W8,
            torch.cat(
                [
                    mtp_query,
                    t[f"{mtp}.self_attn.k_proj.weight"],
                    mtp_gate,
                    t[f"{mtp}.self_attn.v_proj.weight"],
                ]
            ),
        ),
        **expected_vision(t),
    }


def expected_vision(t: dict[str, Tensor]) -> dict[str, tuple[str, Tensor]]:
    return {
        "vision/patch_embedding": (
            Q6,
            t["model.visual.patch_embed.proj.weight"].reshape(64, 1536),
        ),
        "vision/layers/1/attention/qkv": (Q4, t["model.visual.blocks.1.attn.qkv.weight"]),
        "vision/layers/0/mlp/fc2": (Q5, t["model.visual.blocks.0.mlp.linear_fc2.weight"]),
        "vision/merger/fc1": (W8, t["model.visual.merger.linear_fc1.weight"]),
    }


def expected_sparse(t: dict[str, Tensor]) -> dict[str, tuple[str, Tensor]]:
    """The same for the mixture of experts."""
    layer = "model.language_model.layers.3"
    query, gate = halves(t[f"{layer}.self_attn.q_proj.weight"])
    attention = [query, t[f"{layer}.self_attn.k_proj.weight"], gate]
    attention.append(t[f"{layer}.self_attn.v_proj.weight"])
    mixer = "model.language_model.layers.0.linear_attn"
    experts = [f"model.language_model.layers.0.mlp.experts.{e}" for e in range(EXPERTS)]
    gate_up = [t[f"{e}.{part}_proj.weight"] for e in experts for part in ("gate", "up")]
    shared = "model.language_model.layers.0.mlp.shared_expert"
    return {
        "text/layers/3/attention/query_key_gate_value": (W8, torch.cat(attention)),
        "text/layers/0/gdn/query_key_value_z": (
            W8,
            torch.cat([t[f"{mixer}.in_proj_qkv.weight"], t[f"{mixer}.in_proj_z.weight"]]),
        ),
        "text/layers/0/moe/routed_gate_up": (Q4, torch.cat(gate_up)),
        "text/layers/0/moe/routed_down": (
            Q5,
            torch.cat([t[f"{e}.down_proj.weight"] for e in experts]),
        ),
        "text/layers/0/moe/shared_gate_up": (
            W8,
            torch.cat([t[f"{shared}.gate_proj.weight"], t[f"{shared}.up_proj.weight"]]),
        ),
        "mtp/layer/moe/routed_gate_up": (
            W8,
            t["mtp.layers.0.mlp.experts.gate_up_proj"].reshape(512, 128),
        ),
        **expected_vision(t),
    }


def test_packed_objects_hold_the_encoded_source(either: Made) -> None:
    tensors = all_tensors(either.folder)
    expected = (expected_sparse if either.moe else expected_dense)(tensors)
    with open_artifact(either.artifact) as artifact:
        for name, (fmt, values) in expected.items():
            stored = artifact.tensor(name)
            wanted = quantise(values.to(torch.bfloat16), fmt)
            assert stored.format == fmt, name
            assert torch.equal(stored.base, wanted.base), name
            assert torch.equal(stored.scales, wanted.scales), name
            assert fmt in (Q4, W8) or torch.equal(stored.high, wanted.high), name


def test_direct_objects_hold_the_source_words(either: Made) -> None:
    t, layer = all_tensors(either.folder), "model.language_model.layers.0"
    gates = [t[f"{layer}.linear_attn.in_proj_{part}.weight"] for part in ("a", "b")]
    taps = t[f"{layer}.linear_attn.conv1d.weight"]
    expected = {
        "text/layers/0/input_norm": t[f"{layer}.input_layernorm.weight"],
        "text/layers/0/gdn/norm": t[f"{layer}.linear_attn.norm.weight"],
        "text/layers/0/gdn/a_log": t[f"{layer}.linear_attn.A_log"].float(),
        "text/layers/0/gdn/dt_bias": t[f"{layer}.linear_attn.dt_bias"].float(),
        "text/layers/0/gdn/convolution": torch.stack([taps[:, 0, j] for j in range(4)]),
        "text/final_norm": t["model.language_model.norm.weight"],
        "mtp/final_norm": t["mtp.norm.weight"],
        "vision/position_embedding": t["model.visual.pos_embed.weight"],
        "vision/layers/1/mlp/fc1_bias": t["model.visual.blocks.1.mlp.linear_fc1.bias"],
        "vision/merger/norm/weight": t["model.visual.merger.norm.weight"],
    }
    if either.moe:
        expected["text/layers/0/gdn/a_b_projection"] = torch.cat(gates)
        score = t[f"{layer}.mlp.shared_expert_gate.weight"]
        router = torch.cat([t[f"{layer}.mlp.gate.weight"], score])
        expected["text/layers/0/moe/router_shared_gate"] = router
    else:
        expected["text/layers/0/gdn/a_projection"] = gates[0]
        expected["text/layers/0/gdn/b_projection"] = gates[1]
    with open_artifact(either.artifact) as artifact:
        for name, wanted in expected.items():
            stored = artifact.tensor(name)
            assert stored.dtype == wanted.dtype and torch.equal(stored, wanted), name


def test_the_draft_head_holds_the_rows_of_the_most_frequent_ids(either: Made) -> None:
    tokenizer_config = json.loads((either.folder / "tokenizer_config.json").read_text())
    forced = special_ids(tokenizer_config)
    assert len(forced) == 7
    counts = torch.from_numpy(either.counts.copy())
    ids = choose_draft_ids(counts, forced, ADDRESSABLE, DRAFT_ROWS)
    head = all_tensors(either.folder)["lm_head.weight"]
    with open_artifact(either.artifact) as artifact:
        assert artifact.tensor("text/draft_head_token_ids").tolist() == ids.tolist()
        stored = artifact.tensor("text/draft_head")
    wanted = quantise(head[ids], Q4)
    assert torch.equal(stored.base, wanted.base) and torch.equal(stored.scales, wanted.scales)


def test_text_files_and_sizes_are_carried_along(either: Made) -> None:
    with open_artifact(either.artifact) as artifact:
        for name in ("tokenizer.json", "chat_template.jinja", "preprocessor_config.json"):
            assert artifact.resource(f"frontend/{name}") == (either.folder / name).read_bytes()
        document = json.loads(artifact.resource(CONFIG_RESOURCE))
    assert document["model_id"] == "small"
    assert document["mtp"] is True and document["draft_head_rows"] == DRAFT_ROWS
    assert document["text_config"]["addressable_vocab_size"] == ADDRESSABLE


def test_split_and_fused_experts_give_the_same_bytes(sparse: Made, tmp_path: Path) -> None:
    folder = tmp_path / "fused"
    folder.mkdir()
    (folder / "config.json").write_bytes((sparse.folder / "config.json").read_bytes())
    write_text_files(folder)
    rewrite(folder, fuse_experts(all_tensors(sparse.folder), layers=4))
    output = tmp_path / "fused.ninfer"
    convert(replace(sparse.options, source=folder, output=output))
    assert output.read_bytes() == sparse.artifact.read_bytes()


def rounded(values: Tensor, fmt: str) -> Tensor:
    return quantise(values.to(torch.bfloat16), fmt).dequantise()


def rounded_rows(values: Tensor, formats: list[tuple[int, str]]) -> Tensor:
    """Rows of a tensor rounded to formats of their own; groups never cross a row."""
    heights = [height for height, _ in formats]
    parts = zip(values.split(heights), formats, strict=True)
    return torch.cat([rounded(part, fmt) for part, (_, fmt) in parts])


def decoded_parameter(name: str, value: Tensor, moe: bool) -> Tensor:
    """What is left of a parameter of the transformers model after storing it."""
    leaf = name.removesuffix(".weight").rsplit(".", 1)[-1]
    if "visual" in name or value.dim() == 1 or leaf in ("conv1d", "in_proj_a", "in_proj_b"):
        return value.float()
    if leaf in ("gate", "shared_expert_gate"):
        return value.float()
    if leaf in ("embed_tokens", "lm_head"):
        return rounded(value, W8 if moe and leaf == "embed_tokens" else Q6)
    if "experts." in name:
        fmt = Q4 if leaf == "gate_up_proj" else Q5
        return rounded(value.flatten(0, 1), fmt).view(value.shape)
    if moe:
        return rounded(value, W8)
    if leaf == "q_proj":
        return rounded_rows(value, [(HEAD_DIM, Q4), (HEAD_DIM, Q5)] * HEADS)
    if leaf == "in_proj_qkv":
        return rounded_rows(value, [(128, Q4), (128, Q5)])
    return rounded(value, Q4 if leaf in ("k_proj", "gate_proj", "up_proj") else Q5)


@torch.inference_mode()
def theirs(made: Made, *, decoded: bool) -> Tensor:
    """Logits of transformers in float32, with the source's weights or those that were stored."""
    model = type(made.model)(made.model.config).eval().float()
    state = {name: value.clone() for name, value in made.model.state_dict().items()}
    if decoded:
        state = {name: decoded_parameter(name, value, made.moe) for name, value in state.items()}
    model.load_state_dict(state)
    return model(torch.tensor([TOKENS])).logits[0]


@torch.inference_mode()
def test_logits_equal_those_of_transformers_with_the_stored_weights(either: Made) -> None:
    found = artifact_logits(either.artifact, decoded=True)
    assert (found - theirs(either, decoded=True)).abs().max() < 1e-4


@torch.inference_mode()
def test_logits_of_stored_and_decoded_weights_are_equal(either: Made) -> None:
    whole = artifact_logits(either.artifact, decoded=True)
    assert torch.equal(whole, artifact_logits(either.artifact, decoded=False))


@torch.inference_mode()
def test_logits_are_near_those_of_the_source(either: Made) -> None:
    found, wanted = artifact_logits(either.artifact, decoded=True), theirs(either, decoded=False)
    cosine = torch.nn.functional.cosine_similarity(found, wanted, dim=-1)
    # Four and five bits leave an error of a tenth in every product.
    assert cosine.min() > 0.96 and cosine.mean() > 0.98
    # The bound means something: another prompt's logits are far away.
    assert torch.nn.functional.cosine_similarity(found[:-1], wanted[1:], dim=-1).min() < 0.5


@pytest.mark.parametrize("name", ["dense", "sparse"])
def test_the_same_source_gives_the_same_bytes(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    made: Made = request.getfixturevalue(name)
    output = tmp_path / "again.ninfer"
    convert(replace(made.options, output=output))
    assert output.read_bytes() == made.artifact.read_bytes()


@torch.inference_mode()
def test_a_v3_file_holds_the_same_model(either: Made, tmp_path: Path) -> None:
    output = tmp_path / "v3.ninfer"
    options = replace(either.options, framing="v3", output=output)
    convert(options)
    with open_artifact(output) as third, open_artifact(either.artifact) as second:
        assert (third.framing, second.framing) == (3, 2)
        assert CONFIG_RESOURCE not in third.names and CONFIG_RESOURCE in second.names
        for name in third.names:
            sizes = [(e.offset, e.bytes) for e in (third.entry(name), second.entry(name))]
            pairs = zip((third, second), sizes, strict=True)
            one, other = (bytes(file.payload(*place)) for file, place in pairs)
            assert one == other, name
    assert torch.equal(
        artifact_logits(output, decoded=False), artifact_logits(either.artifact, decoded=False)
    )
    assert dry_run(options).file_size == output.stat().st_size
    again = tmp_path / "again" / "v3.ninfer"
    again.parent.mkdir()
    convert(replace(options, output=again))
    assert again.read_bytes() == output.read_bytes()
