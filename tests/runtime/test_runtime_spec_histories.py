"""MTP beside a real target: its states have the same bits whatever was drafted and rejected."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from spec_scene import Model, prompt_of

from ninfer.models.qwen3_6 import bind_mtp, full_head
from ninfer.request import SamplingParams
from ninfer.runtime import Runtime, RuntimeConfig
from ninfer.runtime.speculative import MtpProposer, Speculation, drafter_caches

TOKENS = 45


class Watched(MtpProposer):
    """Keeps its state at every frontier, and gives other drafts than its own."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.states: dict[int, torch.Tensor] = {}
        self.answer: list[int] = []
        self.right = 0.0
        self._rng = random.Random(6)

    def observe(self, rows, batch, hidden, taps) -> None:
        super().observe(rows, batch, hidden, taps)
        for row in rows:
            self.states[row.start + row.kept] = self._tails[row.sequence].hidden.clone()

    def propose(self, sequences, counts) -> list[list[int]]:
        super().propose(sequences, counts)
        (sequence,), (count,) = sequences, counts
        known = self.answer[sequence.generated :][: self._rng.randint(0, count)]
        return [[t if self._rng.random() < self.right else 7 for t in known]]


@pytest.fixture(scope="module", params=["qwen3.6-27b", "qwen3.6-35b-a3b"])
def model(request: pytest.FixtureRequest) -> Model:
    return Model(request.param)


def runs(model: Model, sampling: SamplingParams) -> Iterator[tuple[list[int], Watched, Runtime]]:
    """The same request without drafts, then with ever better ones."""
    config = model.config
    weights = bind_mtp(model.source, config, model.recipe)
    head = full_head(model.text.head, config.text.addressable)
    answer: list[int] = []
    for window, right in ((1, 0.0), (6, 0.0), (6, 0.5), (6, 1.0), (3, 0.7)):
        sizes: RuntimeConfig = replace(model.runtime, window=window)
        (cache,) = drafter_caches("mtp", config, sizes)
        watched = Watched(weights, model.text, config.text, head, cache)
        watched.answer, watched.right = answer, right
        runtime = Runtime(model.text, config, sizes, speculation=Speculation(watched))
        tokens = list(runtime.generate(prompt_of(100), sampling, TOKENS))
        answer = answer or tokens
        yield tokens, watched, runtime


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_states_do_not_know_what_was_rejected(model: Model, temperature: float) -> None:
    sampling = SamplingParams(temperature=temperature, top_k=20, seed=4)
    (tokens, plain, _), *others = runs(model, sampling)
    assert plain.states.keys() >= set(range(100, 100 + TOKENS))
    for other, watched, runtime in others:
        assert other == tokens
        for frontier, state in watched.states.items():
            assert torch.equal(state, plain.states[frontier]), frontier
        counters = runtime.speculation.counters
        assert counters.rounds > 5
        assert (counters.accepted > 0) == (watched.right > 0)
        # Nothing of a finished sequence stays.
        assert not watched._tails and not runtime.speculation._open
        runtime.check()
