"""Logits of prompts with images and videos against transformers, in any cut of the prefill."""

from collections.abc import Sequence as Items

import numpy as np
import pytest
import torch
from hf_model import ROPE, TEXT
from hf_vision import END, IMAGE, START, VIDEO, VISION, our_config, our_weights, reference_model

from ninfer.errors import ConfigError
from ninfer.models.config import model_config_from_fields
from ninfer.models.qwen3_6 import decode, encode_media, logits
from ninfer.request import MediaRun
from ninfer.runtime import RuntimeConfig, pages_for
from ninfer.runtime.batch import Piece, build_batch
from ninfer.runtime.caches import allocate_caches
from ninfer.runtime.media import place_media
from ninfer.runtime.sequence import Sequence

CONTEXT = 384
Grid = tuple[int, int, int]


class Prompt:
    """Random text around images and videos of the given grids, in the layout of a chat prompt."""

    def __init__(self, seed: int, items: Items[tuple[int, Grid]]) -> None:
        draw = np.random.default_rng(seed)
        self.tokens: list[int] = []
        self.runs: list[MediaRun] = []
        self.media: list[tuple[int, Grid, np.ndarray]] = []
        for index, (pad, (time, height, width)) in enumerate(items):
            self.tokens += draw.integers(0, 500, 5).tolist()
            rows = height * width // 4
            steps, each = (1, time) if pad == IMAGE else (time, 1)
            for step in range(steps):
                self.tokens += [*draw.integers(0, 500, 3).tolist(), START]
                grid = (each, height // 2, width // 2)
                self.runs.append(MediaRun(len(self.tokens), grid, index, step * rows))
                self.tokens += [pad] * (each * rows) + [END]
            patches = draw.integers(0, 256, (time * height * width, 1536)).astype(np.uint8)
            self.media.append((pad, (time, height, width), patches))
        self.tokens += draw.integers(0, 500, 6).tolist()


MIXES: dict[str, list[tuple[int, Grid]]] = {
    "image": [(IMAGE, (1, 6, 10))],
    "tall_image": [(IMAGE, (1, 24, 2))],
    "video": [(VIDEO, (3, 4, 6))],
    "still_video": [(VIDEO, (1, 6, 4))],
    "both": [(IMAGE, (1, 4, 8)), (VIDEO, (2, 6, 4)), (IMAGE, (1, 2, 2)), (VIDEO, (3, 2, 4))],
}


class Harness:
    """Our model and the transformers model with the same weights, both in float32."""

    def __init__(self, moe: bool) -> None:
        self.reference = reference_model(moe=moe)
        self.config = our_config(moe=moe)
        self.text, self.vision = our_weights(self.reference, self.config)

    @torch.inference_mode()
    def expected(self, prompt: Prompt) -> torch.Tensor:
        tokens = torch.tensor([prompt.tokens])
        inputs = {"mm_token_type_ids": (tokens == IMAGE).int() + 2 * (tokens == VIDEO).int()}
        for pad, pixels, grids in (
            (IMAGE, "pixel_values", "image_grid_thw"),
            (VIDEO, "pixel_values_videos", "video_grid_thw"),
        ):
            own = [(grid, patches) for kind, grid, patches in prompt.media if kind == pad]
            if own:
                values = np.concatenate([patches for _, patches in own]).astype(np.float32)
                inputs[pixels] = torch.from_numpy(values / 127.5 - 1)
                inputs[grids] = torch.tensor([grid for grid, _ in own])
        return self.reference(tokens, **inputs).logits[0]

    @torch.inference_mode()
    def encoded(self, prompt: Prompt) -> list[torch.Tensor]:
        return [
            encode_media(
                self.vision,
                self.config.vision,
                torch.from_numpy(patches),
                grid,
                dtype=torch.float32,
            )
            for _, grid, patches in prompt.media
        ]

    @torch.inference_mode()
    def ours(
        self,
        prompt: Prompt,
        cut: int,
        *,
        with_media: bool = True,
        prompt_length: int | None = None,
    ) -> torch.Tensor:
        """Logits of every row, in passes of `cut` tokens; those behind the prompt are generated."""
        runtime = RuntimeConfig(
            device=torch.device("cpu"),
            dtype=torch.float32,
            kv_format="fp32",
            max_context=CONTEXT,
            pages=pages_for(CONTEXT),
            state_slots=1,
            prefill_chunk=CONTEXT,
        )
        caches = allocate_caches(self.config, runtime)
        length = len(prompt.tokens)
        sequence = Sequence(prompt.tokens, length, None, list(range(pages_for(CONTEXT))), 0)
        if with_media:
            known = prompt_length or length
            sequence.media = place_media(known, prompt.runs, self.encoded(prompt))
        rows = []
        while sequence.cached < length:
            piece = Piece(sequence, min(cut, length - sequence.cached), True)
            batch = build_batch([piece], runtime.device)
            hidden, _ = decode(self.text, self.config.text, batch, caches, dtype=torch.float32)
            rows.append(logits(self.text, hidden, torch.arange(piece.count)))
            sequence.cached += piece.count
        return torch.cat(rows)


@pytest.fixture(scope="module", params=["dense", "moe"])
def harness(request: pytest.FixtureRequest) -> Harness:
    return Harness(request.param == "moe")


@pytest.mark.parametrize("mix", MIXES)
def test_logits_equal_transformers(harness: Harness, mix: str) -> None:
    prompt = Prompt(3, MIXES[mix])
    ours, expected = harness.ours(prompt, CONTEXT), harness.expected(prompt)
    assert (ours - expected).abs().max() < 1e-4
    # The media matter: without them the logits behind them are others.
    assert (harness.ours(prompt, CONTEXT, with_media=False) - expected)[-1].abs().max() > 1e-2


@pytest.mark.parametrize("cut", [1, 7, 16, 33])
def test_any_cut_of_the_prefill_gives_the_same_logits(harness: Harness, cut: int) -> None:
    """L4: media that span several passes."""
    prompt = Prompt(4, MIXES["both"])
    assert (harness.ours(prompt, cut) - harness.ours(prompt, CONTEXT)).abs().max() < 1e-5


@pytest.mark.parametrize("mix", ["video", "both"])
def test_generated_tokens_go_on_from_the_positions_of_the_prompt(
    harness: Harness, mix: str
) -> None:
    prompt = Prompt(5, MIXES[mix])
    ours = harness.ours(prompt, 50, prompt_length=len(prompt.tokens) - 5)
    assert (ours - harness.expected(prompt)).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 5}, "vision hidden_size 96 does not fit num_heads times 4"),
        ({"num_heads": 16}, "vision hidden_size 96 does not fit num_heads times 4"),
        ({"num_position_embeddings": 63}, "vision num_position_embeddings 63 does not fit"),
    ],
)
def test_sizes_that_the_tower_cannot_run_are_refused(change: dict[str, int], message: str) -> None:
    fields = {"text_config": {**TEXT, "rope_parameters": ROPE}}
    with pytest.raises(ConfigError, match=message):
        model_config_from_fields({**fields, "vision_config": {**VISION, **change}})
