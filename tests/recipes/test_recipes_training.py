"""Packed training: documents that share rows do not see each other, and nothing is lost."""

import itertools
import random

import pytest
import torch
from demo_models import NAMES, untrained
from torch import Tensor

from recipes.tiny.batch import Batch, pack, pad
from recipes.tiny.documents import causal_attention
from recipes.tiny.encode import Encoded, Encoder
from recipes.tiny.feed import ROWS, Feed, Packer, Rows, samples
from recipes.tiny.losses import losses, right_answers
from recipes.tiny.mixture import MIXTURES, task_makers
from recipes.tiny.step import Pass


def encoded(tasks: list[str], seed: int = 0) -> list[Encoded]:
    """One sample of each task."""
    encoder, rng, makers = Encoder(), random.Random(seed), task_makers()
    return [encoder.encode(makers[task](rng)) for task in tasks]


TASKS = {
    "tiny": ["chat", "image_count", "lists", "two_images", "copy", "translation_en_de"],
    "tiny-moe": ["chat", "lists", "copy", "json_object", "translation_en_de"],
}


def both(name: str) -> tuple[Batch, Batch, list[Encoded]]:
    """The same samples packed into two rows, and alone in rows."""
    given = encoded(TASKS[name])
    packed = pack([given[:3], given[3:]], 320, 12)
    return packed, pad(given, 192), given


@pytest.mark.parametrize("name", NAMES)
def test_packed_documents_are_computed_as_if_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The balance of experts is over all tokens of a batch, padding included.
    monkeypatch.setattr("recipes.tiny.losses.BALANCE_WEIGHT", 0.0)
    model = untrained(name)
    packed, single, given = both(name)
    found = losses(model, packed, model.embed(packed), 3)
    apart = losses(model, single, model.embed(single), 3)
    torch.testing.assert_close(packed.weights.sum(), single.weights.sum())
    torch.testing.assert_close(found.parts, apart.parts, rtol=1e-4, atol=1e-4)
    for owner, sample in enumerate(given):
        mine = found.wrong[packed.owners == owner]
        assert torch.equal(mine, apart.wrong[owner, : len(sample.ids)])
    parameters = list(model.parameters())
    for a, b in zip(
        torch.autograd.grad(found.total, parameters),
        torch.autograd.grad(apart.total, parameters),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3 * float(b.abs().max()))


def test_a_pass_adds_the_gradients_of_its_batch() -> None:
    model = untrained("tiny")
    packed, _, _ = both("tiny")
    parameters = list(model.parameters())
    want = torch.autograd.grad(losses(model, packed, model.embed(packed), 2).total, parameters)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    run = Pass(model, 2)
    found = run(packed, torch.tensor(0.5))
    for parameter, grad in zip(parameters, want, strict=True):
        added = parameter.grad - 1
        torch.testing.assert_close(added, 0.5 * grad, rtol=1e-3, atol=1e-4)
    assert found.parts.shape == (3,)


def test_right_answers_are_counted_by_sample() -> None:
    packed, _, given = both("tiny")
    wrong = torch.zeros_like(packed.targets)
    wrong[packed.owners == 2] = True
    found = right_answers(packed, wrong)
    assert found == {s.task: [int(i != 2)] for i, s in enumerate(given)}


def test_every_sample_is_packed_once() -> None:
    stream = samples(MIXTURES["tiny-moe"], 3)
    short = (s for s in stream if ROWS[0].shortest <= len(s.ids) <= 256)
    given = list(itertools.islice(short, 80))
    packer, done = Packer(Rows(512, 256, 24), 2048), []
    for sample in given:
        if (batch := packer.add(sample)) is not None:
            done.append(batch)
    assert len(done) >= 2
    seen: list[list[int]] = []
    for batch in done:
        owners: Tensor = batch.owners
        seen += [batch.ids[owners == i].tolist() for i in range(len(batch.tasks))]
        filled = float((owners < len(batch.tasks)).float().mean())
        assert filled > 0.7
        assert batch.documents.starts.shape == (Rows(512, 256, 24).most_documents(4) + 1,)
        assert int(batch.documents.starts[-1]) == batch.ids.numel()
        assert bool((batch.documents.starts.diff() >= 0).all())
    want = [s.ids.tolist() for s in given]
    assert len(seen) <= len(want)
    assert all(ids in want for ids in seen)
    assert len(seen) > 0.5 * len(want)


def test_the_feed_gives_the_shapes_that_are_captured() -> None:
    feed = iter(Feed(MIXTURES["tiny"], 8192, seed=1))
    batch = next(feed)
    assert batch.ids.shape in [(8192 // rows.length, rows.length) for rows in ROWS]
    assert set(batch.tasks) <= set(MIXTURES["tiny"])


@pytest.mark.gpu
def test_flash_attention_stays_inside_documents() -> None:
    torch.manual_seed(0)
    packed, _, _ = both("tiny")
    rows, length = packed.ids.shape
    parts = [torch.randn(rows, length, heads, 256) for heads in (6, 1, 1)]
    along = torch.randn(rows, length, 6, 256)
    results = []
    for device, dtype in (("cpu", torch.float32), ("cuda", torch.bfloat16)):
        q, k, v = (x.to(device, dtype).requires_grad_() for x in parts)
        out = causal_attention(q, k, v, packed.to(torch.device(device)).documents)
        grads = torch.autograd.grad((out.float() * along.to(device)).sum(), (q, k, v))
        results.append([x.float().cpu() for x in (out.detach(), *grads)])
    for want, got in zip(*results, strict=True):
        assert (got - want).norm() < 0.02 * want.norm()


# What compiles, and autograd around a capture, warn about torch's own code.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_a_captured_pass_is_the_pass(name: str) -> None:
    device = torch.device("cuda")
    model = untrained(name).to(device)
    model.dtype = torch.bfloat16
    packed, _, given = both(name)
    other = pack([given[3:], given[:3]], 320, 12)
    found = {}
    # Captured first: nodes of gradients remember the stream of their first use.
    for pool in (torch.cuda.graph_pool_handle(), None):
        run = Pass(model, 3, pool)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        parts = [
            run(batch.to(device), torch.tensor(0.5, device=device)).parts.clone()
            for batch in (packed, other, packed)
        ]
        grads = torch.cat([p.grad.flatten() for p in model.parameters()])
        found[pool is None] = (torch.stack(parts), grads)
    for want, got in zip(found[True], found[False], strict=True):
        assert (got - want).norm() < 0.02 * want.norm()
