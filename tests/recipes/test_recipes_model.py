"""The trainer's parts: delta rule, layers, imitated storage, own answers, Muon, checkpoints."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from demo_models import NAMES, alone, batch_of, reduced_config, untrained
from torch import Tensor
from torch.nn import functional
from transformers import (
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeForCausalLM,
    Qwen3_5MoeTextConfig,
)

from ninfer.formats import dequantise, quantise
from recipes.tiny.batch import Batch
from recipes.tiny.checkpoint import load_weights, save_checkpoint, save_weights
from recipes.tiny.gated_delta import gated_delta, unchunked
from recipes.tiny.geometry import config_of
from recipes.tiny.layers import Matrix
from recipes.tiny.model import DemoModel
from recipes.tiny.optimiser import Muon, optimisers
from recipes.tiny.own_outputs import own_answers
from recipes.tiny.quantised import Rows, imitate
from recipes.tiny.short_convolution import short_convolution


def slow_delta(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    rate: Tensor,
    bias: Tensor,
    first: Tensor,
) -> Tensor:
    """The delta rule token by token."""
    share = v.shape[2] // k.shape[2]
    q, k = (functional.normalize(x, dim=-1).repeat_interleave(share, dim=2) for x in (q, k))
    decay, write = -rate.exp() * functional.softplus(a + bias), torch.sigmoid(b)
    state = v.new_zeros(v.shape[0], v.shape[2], q.shape[3], v.shape[3])
    rows = []
    for t in range(q.shape[1]):
        kept = decay[:, t].exp() * ~first[:, t, None]
        state = state * kept[..., None, None]
        told = torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        fresh = write[:, t, :, None] * (v[:, t] - told)
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], fresh)
        rows.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]) * q.shape[-1] ** -0.5)
    return torch.stack(rows, dim=1)


def delta_inputs(alike: float, fading: float) -> list[Tensor]:
    """Queries and keys of 2 heads, values and gates of 6; `alike` keys are hard to tell apart."""
    batch, length, keys, heads, dim = 2, 192, 2, 6, 16
    q = torch.randn(batch, length, keys, dim)
    k = torch.randn(batch, length, keys, dim) + alike
    v = torch.randn(batch, length, heads, dim)
    a, b = torch.randn(2, batch, length, heads).unbind()
    rate, bias = torch.randn(heads) + fading, torch.randn(heads) - 1
    return [x.requires_grad_() for x in (q, k, v, a, b, rate, bias)]


@pytest.mark.parametrize("documents", [[], [1, 64, 70, 150]])
@pytest.mark.parametrize("alike", [0.0, 1.5])
@pytest.mark.parametrize("fading", [-4.0, 0.0, 3.0])
def test_delta_rule_in_chunks_is_the_recurrence(
    alike: float, fading: float, documents: list[int]
) -> None:
    inputs = delta_inputs(alike, fading)
    first = torch.zeros(2, 192, dtype=torch.bool)
    first[0, documents] = True
    got = unchunked(gated_delta(*inputs, first), 2)
    want = slow_delta(*inputs, first)
    assert (got - want).abs().max() < 1e-4 * want.abs().max()
    along = torch.randn_like(want)
    for mine, theirs in zip(
        torch.autograd.grad((got * along).sum(), inputs),
        torch.autograd.grad((want * along).sum(), inputs),
        strict=True,
    ):
        assert (mine - theirs).abs().max() < 1e-3 * theirs.abs().max()


def slow_convolution(x: Tensor, taps: Tensor, offsets: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            for back in range(min(taps.shape[1], int(offsets[b, t]) + 1)):
                out[b, t] = out[b, t] + x[b, t - back] * taps[:, -1 - back]
    return torch.nn.functional.silu(out)


def test_convolution_stays_inside_documents() -> None:
    x = torch.randn(2, 20, 5, dtype=torch.float64, requires_grad=True)
    taps = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    starts = [[0, 1, 2, 9, 19], [0]]
    offsets = torch.tensor(
        [[t - max(s for s in row if s <= t) for t in range(20)] for row in starts]
    )
    got, want = (f(x, taps, offsets) for f in (short_convolution, slow_convolution))
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    along = torch.randn_like(want)
    for mine, theirs in zip(
        torch.autograd.grad((got * along).sum(), (x, taps)),
        torch.autograd.grad((want * along).sum(), (x, taps)),
        strict=True,
    ):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=1e-5)


def reference_of(name: str, model: DemoModel) -> torch.nn.Module:
    """The transformers model of the same weights; a name that one side lacks is an error."""
    config = reduced_config(name)
    state = {n: v for n, v in model.state_dict().items() if not n.startswith("mtp.")}
    if name == "tiny":
        fields = {n: config[n] for n in ("text_config", "vision_config", "tie_word_embeddings")}
        reference = Qwen3_5ForConditionalGeneration(Qwen3_5Config(**fields))
    else:
        reference = Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**config["text_config"]))
        state = {n.replace("model.language_model.", "model."): v for n, v in state.items()}
    reference.load_state_dict(state)
    return reference.eval()


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_logits_equal_transformers(name: str) -> None:
    model = untrained(name)
    batch = alone(torch.randint(0, 2000, (2, 192)).tolist(), 192)
    hidden, _ = model.hidden(model.embed(batch), batch)
    got, want = model.lm_head(hidden), reference_of(name, model)(input_ids=batch.ids).logits
    assert want.abs().max() > 5
    assert (got - want).abs().max() < 1e-3


@torch.no_grad()
def test_vision_tower_equals_transformers() -> None:
    model = untrained("tiny")
    batch, encoded = batch_of("two_images", 256)
    got = model.model.visual(batch.slices, torch.float32)
    pixels = np.concatenate([m.patches for m in encoded.media]).astype(np.float32) / 127.5 - 1
    grids = torch.tensor([m.grid for m in encoded.media])
    want = reference_of("tiny", model).model.visual(torch.from_numpy(pixels), grids).pooler_output
    assert (got - want).abs().max() < 1e-4


FORMATS = ("Q4G64_F16S", "Q5G64_F16S", "Q6G64_F16S", "W8G32_F16S")


@pytest.mark.parametrize("width", [64, 100, 432])
@pytest.mark.parametrize("second", FORMATS)
def test_imitation_is_what_the_formats_give_back(second: str, width: int) -> None:
    matrix = torch.randn(24, width) * torch.logspace(-4, 2, 24).unsqueeze(1)
    matrix[3] = 0
    weight = matrix.clone().requires_grad_()
    got = imitate(weight, [Rows(10, "Q4G64_F16S"), Rows(14, second)])
    parts = (quantise(matrix[:10], "Q4G64_F16S"), quantise(matrix[10:], second))
    assert torch.equal(got, torch.cat([dequantise(part) for part in parts]))
    along = torch.randn_like(matrix)
    (grad,) = torch.autograd.grad((got * along).sum(), weight)
    assert torch.equal(grad, along)


@pytest.mark.parametrize("name", NAMES)
def test_only_matrices_kept_in_bfloat16_are_not_imitated(name: str) -> None:
    model = untrained(name)
    plain = [n for n, m in model.named_modules() if isinstance(m, Matrix) and not m.rows]
    kept = ("in_proj_a", "in_proj_b", "mlp.gate", "shared_expert_gate")
    assert plain and all(n.endswith(kept) for n in plain)


def greedy(model: DemoModel, ids: list[int], room: int, end: int) -> list[int]:
    """The answer to `ids`, one token after the other, up to its end."""
    answer: list[int] = []
    while len(answer) < room and answer[-1:] != [end]:
        known = ids + answer
        batch = alone([known], len(known) + -len(known) % 64)
        hidden, _ = model.hidden(model.embed(batch), batch)
        answer.append(int(model.lm_head(hidden)[0, len(ids) + len(answer) - 1].argmax()))
    return answer


def questions() -> Batch:
    """Two prompts with answers, padded to 64 tokens."""
    ids = torch.randint(0, 2000, (2, 64)).tolist()
    return alone([ids[0][:50], ids[1][:60]], 64, [12, 15])


@torch.no_grad()
def test_own_answers_are_those_of_step_by_step_decoding() -> None:
    model, batch = untrained("tiny-moe"), questions()
    want = [greedy(model, batch.ids[r, :n].tolist(), 64 - n, -1) for r, n in ((0, 38), (1, 45))]
    # The first answer ends early, at a token that the model says by itself.
    end = want[0][5]
    done = own_answers(model, batch, passes=30, temperature=0.0, end_id=end)
    for row, first in ((0, 38), (1, 45)):
        answer = want[row]
        if end in answer:
            answer = answer[: answer.index(end) + 1]
        assert done.targets[row].nonzero().flatten().tolist() == list(
            range(first, first + len(answer))
        )
        assert done.ids[row, first : first + len(answer)].tolist() == answer
    assert torch.equal(done.ids[0, :38], batch.ids[0, :38])
    assert torch.equal(done.weights, done.targets.float())


@torch.no_grad()
def test_answers_that_have_not_settled_are_no_targets() -> None:
    model, batch = untrained("tiny-moe"), questions()
    want = greedy(model, batch.ids[0, :38].tolist(), 26, -1)
    for passes in (1, 3, 7):
        done = own_answers(model, batch, passes=passes, temperature=0.0, end_id=-1)
        settled = int(done.targets[0].sum())
        assert settled >= passes
        assert done.ids[0, 38 : 38 + settled].tolist() == want[:settled]


@torch.no_grad()
def test_drawn_answers_follow_the_probabilities() -> None:
    """Of many rows with one prompt, the first drawn token has the model's own distribution."""
    model, one, count = untrained("tiny-moe"), questions(), 96
    batch = alone([one.ids[0, :50].tolist()] * count, 64, [12] * count)
    hidden, _ = model.hidden(model.embed(one), one)
    chances = (model.lm_head(hidden)[0, 37] / 0.7).softmax(-1)
    done = own_answers(model, batch, passes=1, temperature=0.7, end_id=-1)
    first = done.ids[:, 38]
    likely = chances.topk(100).indices
    found = torch.isin(first, likely).float().mean()
    expected = chances[likely].sum()
    assert abs(found - expected) < 4 * (expected * (1 - expected) / count) ** 0.5
    assert first.unique().numel() > 10


@pytest.mark.parametrize("shape", [(96, 96), (64, 160), (160, 64)])
def test_steps_of_muon_are_nearly_orthogonal(shape: tuple[int, int]) -> None:
    """Every direction of a gradient moves about equally far, however strong it is."""
    rows = min(shape)
    left, _ = torch.linalg.qr(torch.randn(shape[0], rows))
    right, _ = torch.linalg.qr(torch.randn(shape[1], rows))
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for _ in range(2)]
    optimiser = Muon(parameters, lr=1.0)
    for scale, parameter in zip((1.0, 50.0), parameters, strict=True):
        parameter.grad = scale * left @ torch.diag(torch.logspace(0, -1.5, rows)) @ right.T
    optimiser.step()
    for parameter in parameters:
        moved = parameter.detach() / (0.2 * max(shape) ** 0.5)
        sizes = (left.T @ -moved @ right).diagonal()
        assert sizes.min() > 0.5 and sizes.max() < 1.4
        assert torch.linalg.matrix_norm(moved, 2) < 1.4
    # Both roundings are to bfloat16.
    assert (parameters[0] - parameters[1]).norm() < 0.05 * parameters[0].norm()


def test_optimisers_share_the_parameters() -> None:
    model = untrained("tiny")
    muon, adam = (o.param_groups[0]["params"] for o in optimisers(model, 1e-3))
    ids = {id(p) for p in muon} | {id(p) for p in adam}
    assert len(ids) == len(muon) + len(adam) == sum(1 for _ in model.parameters())
    names = {id(p): n for n, p in model.named_parameters()}
    assert all(p.ndim >= 2 for p in muon)
    assert not any("embed_tokens" in names[id(p)] or "lm_head" in names[id(p)] for p in muon)
    assert any("mlp.down_proj" in names[id(p)] for p in muon)


@pytest.mark.parametrize("name", NAMES)
def test_checkpoints_come_in_small_shards_and_load_back(name: str, tmp_path: Path) -> None:
    model = DemoModel(config_of(name), torch.float32)
    save_checkpoint(model, config_of(name), tmp_path)
    shards = list(tmp_path.glob("*.safetensors"))
    assert len(shards) > 1
    assert max(shard.stat().st_size for shard in shards) < 16 << 20
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    assert {shard.name for shard in shards} == set(index.values())
    state = load_weights(tmp_path)
    assert set(state) == set(model.state_dict()) == set(index)
    for key, value in model.state_dict().items():
        wide = key.endswith(("A_log", "dt_bias"))
        assert state[key].dtype is (torch.float32 if wide else torch.bfloat16)
        assert torch.equal(state[key], value.to(state[key].dtype))
    assert json.loads((tmp_path / "config.json").read_text()) == config_of(name)
    model.load_state_dict(state)


def test_a_tensor_that_fills_a_shard_stands_alone(tmp_path: Path) -> None:
    state = {name: torch.zeros(7 << 20, dtype=torch.bfloat16) for name in "abc"}
    save_weights(state, tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) == 3
    assert set(load_weights(tmp_path)) == set(state)
