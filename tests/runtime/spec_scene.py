"""Drafters of small random models, and a target whose states are a hash of the tokens before."""

import random
from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer.convert import full_size_weights
from ninfer.formats import PackedMatrix
from ninfer.models import ModelConfig
from ninfer.models.forward_batch import ForwardBatch, MediaRows
from ninfer.models.qwen3_6 import TextWeights, bind_text, recipe_for
from ninfer.ops.tensors import RaggedRows
from ninfer.request import MediaRun, SamplingParams
from ninfer.runtime.config import PAGE_SIZE, RuntimeConfig, pages_for
from ninfer.runtime.media import PromptMedia, place_media, positions_of, rows_of
from ninfer.runtime.sequence import Sequence
from ninfer.runtime.speculative import Proposer, TargetRows

PAGES = 24


class Model:
    """Stored objects of a synthetic model as float32, and its text weights."""

    def __init__(self, like: str, drafter: str | None = None) -> None:
        self._stored = full_size_weights(like, device="cpu", drafter=drafter, scale="micro", seed=3)
        self.config: ModelConfig = self._stored.model.config
        self.recipe = recipe_for(self.config, "groupwise-int")
        self.text: TextWeights = bind_text(self.source, self.config, self.recipe)
        self.runtime = RuntimeConfig(
            device=torch.device("cpu"),
            dtype=torch.float32,
            kv_format="bf16",
            max_context=PAGES * PAGE_SIZE,
            pages=PAGES,
            state_slots=1,
            prefill_chunk=1024,
        )

    def source(self, name: str) -> Tensor:
        stored = self._stored(name)
        if isinstance(stored, PackedMatrix):
            return stored.dequantise(torch.float32)
        return stored.to(torch.float32) if stored.is_floating_point() else stored


def states(tokens: Items[int], start: int, stop: int, width: int, salt: int) -> Tensor:
    """Rows [stop - start, width]: row t is a function of tokens[: t + 1] and the salt alone."""
    rows = []
    for t in range(start, stop):
        generator = torch.Generator().manual_seed(hash((salt, *tokens[: t + 1])) % 2**63)
        rows.append(torch.randn(width, generator=generator))
    return torch.stack(rows)


class Pool:
    """Pages in a random order."""

    def __init__(self, seed: int = 0) -> None:
        self._free = random.Random(seed).sample(range(PAGES), PAGES)

    def sequence(
        self, prompt: Items[int], room: int, runs: Items[MediaRun] = (), **params: float
    ) -> Sequence:
        pages = [self._free.pop() for _ in range(pages_for(len(prompt) + room))]
        made = Sequence(list(prompt), len(prompt), SamplingParams(**params), pages, 0)
        made.media = pictures(len(prompt), runs) if runs else None
        return made


def pictures(length: int, runs: Items[MediaRun]) -> PromptMedia:
    generator = torch.Generator().manual_seed(8)
    return place_media(
        length, runs, [torch.randn(r.length, 128, generator=generator) for r in runs]
    )


@dataclass
class Step:
    """One sequence's part of a pass: `count` prompt tokens, or the anchor and these drafts."""

    sequence: Sequence
    count: int
    drafts: Items[int] = ()
    chosen: Items[int] = ()  # tokens that the target draws: accepted drafts, then one more


def run_pass(model: Model, proposer: Proposer, steps: Items[Step]) -> None:
    """A target pass with made-up states, its acceptance, and what the proposer is told of it."""
    batch, hidden, taps = _pass(model, steps)
    rows, first = [], 0
    for step in steps:
        s, start, count = step.sequence, step.sequence.cached, step.count + len(step.drafts)
        kept = len(step.chosen) if step.drafts else count
        s.tokens.extend(step.chosen)
        s.cached += kept
        rows.append(TargetRows(s, start, first, kept, s.tokens[s.cached]))
        first += count
    wanted = [taps[layer] for layer in proposer.taps]
    proposer.observe(rows, batch, hidden, wanted)


def _pass(model: Model, steps: Items[Step]) -> tuple[ForwardBatch, Tensor, list[Tensor]]:
    width, layers = model.config.text.hidden, model.config.text.layers
    tokens: list[int] = []
    slots: list[int] = []
    offsets, ends, axes, hidden, places, embeddings = [0], [], [], [], [], []
    taps: list[list[Tensor]] = [[] for _ in range(layers)]
    for step in steps:
        s, start = step.sequence, step.sequence.cached
        whole = s.tokens[: start + step.count] + list(step.drafts)
        if s.media is not None:
            inside, rows = rows_of(s.media, start, len(whole) - start)
            places.append(inside + offsets[-1])
            embeddings.append(rows)
        tokens += whole[start:]
        slots += [
            s.pages[p // PAGE_SIZE] * PAGE_SIZE + p % PAGE_SIZE for p in range(start, len(whole))
        ]
        offsets.append(len(tokens))
        ends.append(len(whole))
        axes.append(positions_of(s.media, start, len(whole) - start))
        hidden.append(states(whole, start, len(whole), width, 0))
        for layer, tap in enumerate(taps):
            tap.append(states(whole, start, len(whole), width, layer + 1))
    longest = max(len(step.sequence.pages) for step in steps)
    table = [step.sequence.pages + [0] * (longest - len(step.sequence.pages)) for step in steps]
    batch = ForwardBatch(
        tokens=torch.tensor(tokens),
        positions=torch.cat(axes, dim=1),
        rows=RaggedRows(
            torch.tensor(offsets),
            torch.tensor(ends),
            torch.tensor(table),
            torch.arange(len(steps)),
        ),
        kv_slots=torch.tensor(slots),
        logit_rows=torch.empty(0, dtype=torch.int64),
        media=MediaRows(torch.cat(places), torch.cat(embeddings)) if places else None,
    )
    return batch, torch.cat(hidden), [torch.cat(tap) for tap in taps]


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(500), k=length)


def prefill(model: Model, proposer: Proposer, sequence: Sequence, token: int, cut: int = 0) -> None:
    """The whole prompt, in one piece or cut at `cut`, and the first generated token."""
    for count in (cut, sequence.prompt_length - cut):
        if count:
            is_last = sequence.cached + count == sequence.prompt_length
            step = Step(sequence, count, chosen=[token] if is_last else [])
            run_pass(model, proposer, [step])


def verify(
    model: Model, proposer: Proposer, sequences: Items[Sequence], rng: random.Random, most: int
) -> None:
    """A round: real proposals are made, then drafts of which a random number is right."""
    counts = [rng.randint(0, most) for _ in sequences]
    proposer.propose(sequences, counts)
    steps = []
    for s, count in zip(sequences, counts, strict=True):
        drafts = rng.choices(range(500), k=count)
        right = rng.randint(0, count)
        other = (drafts[right] + 1) % 500 if right < count else rng.randrange(500)
        steps.append(Step(s, 1, drafts, [*drafts[:right], other]))
    run_pass(model, proposer, steps)
