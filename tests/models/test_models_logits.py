"""Logits of the text models against transformers, and prefill cut in different ways."""

from dataclasses import replace

import pytest
import torch
from hf_model import ROPE, our_config, our_weights, reference_model

from ninfer.models.config import stretched
from ninfer.models.qwen3_6 import decode, logits
from ninfer.runtime import RuntimeConfig, pages_for
from ninfer.runtime.batch import Piece, build_batch
from ninfer.runtime.caches import allocate_caches
from ninfer.runtime.sequence import Sequence

CONTEXT = 384


class Harness:
    """Our model and the transformers model with the same weights, both in float32."""

    def __init__(self, moe: bool, rope: dict | None = None) -> None:
        """`rope` stretches the context as its YaRN says."""
        self.reference = reference_model(moe=moe, rope=rope)
        self.config = our_config(moe=moe)
        if rope is not None:
            text = replace(self.config.text, context=rope["original_max_position_embeddings"])
            self.config = stretched(replace(self.config, text=text), rope["factor"])
        self.weights = our_weights(self.reference, self.config)

    @torch.inference_mode()
    def expected(self, tokens: list[int]) -> torch.Tensor:
        return self.reference(torch.tensor([tokens])).logits[0]

    @torch.inference_mode()
    def ours(self, prompts: list[list[int]], cuts: list[int]) -> list[torch.Tensor]:
        """Logits of every row; all prompts run side by side in passes of these lengths."""
        runtime = RuntimeConfig(
            device=torch.device("cpu"),
            dtype=torch.float32,
            kv_format="fp32",
            max_context=CONTEXT,
            pages=len(prompts) * pages_for(CONTEXT),
            state_slots=len(prompts),
            prefill_chunk=CONTEXT,
        )
        caches = allocate_caches(self.config, runtime)
        width = pages_for(CONTEXT)
        # Pages and slots are handed out backwards, so that an index mix-up cannot pass unseen.
        sequences = [
            Sequence(prompt, len(prompt), None, list(range(i * width, (i + 1) * width))[::-1], i)
            for i, prompt in reversed(list(enumerate(prompts)))
        ][::-1]
        rows: list[list[torch.Tensor]] = [[] for _ in prompts]
        for cut in cuts:
            pieces = [Piece(s, min(cut, len(s.tokens) - s.cached), True) for s in sequences]
            live = [piece for piece in pieces if piece.count]
            batch = build_batch(live, runtime.device)
            hidden, _ = decode(self.weights, self.config.text, batch, caches, dtype=torch.float32)
            every = logits(self.weights, hidden, torch.arange(hidden.shape[0]))
            for piece, part in zip(live, every.split([p.count for p in live]), strict=True):
                rows[sequences.index(piece.sequence)].append(part)
                piece.sequence.cached += piece.count
        return [torch.cat(parts) for parts in rows]


@pytest.fixture(scope="module", params=["dense", "moe"])
def harness(request: pytest.FixtureRequest) -> Harness:
    return Harness(request.param == "moe")


def prompt_of(length: int) -> list[int]:
    generator = torch.Generator().manual_seed(length)
    return torch.randint(0, 512, (length,), generator=generator).tolist()


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 63, 64, 65, 128, 200, 300])
def test_logits_equal_transformers(harness: Harness, length: int) -> None:
    tokens = prompt_of(length)
    (ours,) = harness.ours([tokens], [length])
    assert (ours - harness.expected(tokens)).abs().max() < 1e-4


@pytest.mark.parametrize("moe", [False, True])
@pytest.mark.parametrize("factor", [2.0, 4.0])
def test_logits_of_a_stretched_context_equal_transformers(moe: bool, factor: float) -> None:
    """Natively 64 tokens, so that every frequency has its part: kept, mixed and divided."""
    yarn = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": 64}
    stretched, tokens = Harness(moe, {**ROPE, **yarn}), prompt_of(200)
    (ours,) = stretched.ours([tokens], [200])
    wanted = stretched.expected(tokens)
    assert (ours - wanted).abs().max() < 1e-4
    # Or the factor would not have reached both.
    assert (Harness(moe).expected(tokens) - wanted).abs().max() > 1e-2


@pytest.mark.parametrize("cut", [1, 7, 64, 100, 128])
def test_chunked_prefill_equals_one_shot(harness: Harness, cut: int) -> None:
    tokens = prompt_of(300)
    (whole,) = harness.ours([tokens], [300])
    (pieces,) = harness.ours([tokens], [cut] * -(-300 // cut))
    assert (whole - pieces).abs().max() < 1e-5


def test_a_batch_of_different_lengths_equals_each_alone(harness: Harness) -> None:
    prompts = [prompt_of(length) for length in (5, 130, 64, 1)]
    together = harness.ours(prompts, [60, 40, 40])
    for prompt, ours in zip(prompts, together, strict=True):
        (alone,) = harness.ours([prompt], [len(prompt)])
        assert (ours - alone).abs().max() < 1e-5
        assert (ours - harness.expected(prompt)).abs().max() < 1e-4
