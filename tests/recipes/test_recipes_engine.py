"""A trained model means the same in the engine: text, images, drafts, over a converted artifact."""

from pathlib import Path

import pytest
import torch
from demo_models import DRAFTER, NAMES, batch_of, exported
from torch import Tensor
from torch.nn import functional

from ninfer.engine.loader import LoadedModel, load_model
from ninfer.engine.options import EngineOptions
from ninfer.engine.residency import Residency
from ninfer.models.forward_batch import ForwardBatch
from ninfer.models.qwen3_6 import (
    ContextRows,
    block_forward,
    decode,
    draft_block,
    encode_media,
    extend_context,
    full_head,
    logits,
    mtp_forward,
    shifted_batch,
)
from ninfer.models.qwen3_6.mtp import MtpWeights
from ninfer.models.qwen3_6.proposal import proposal_logits
from ninfer.runtime import RuntimeConfig, pages_for
from ninfer.runtime.batch import Piece, build_batch
from ninfer.runtime.caches import allocate_caches
from ninfer.runtime.media import place_media
from ninfer.runtime.sequence import Sequence
from ninfer.runtime.speculative import drafter_caches
from recipes.tiny.drafter import Drafter
from recipes.tiny.encode import Encoded
from recipes.tiny.model import DemoModel

CPU = torch.device("cpu")
LENGTH = 256
# Both sides compute in float32; sums differ in their order only. Logits go to 10 or so.
CLOSE = 1e-4


class Side:
    """The engine's model of an artifact in float32, with caches for one sequence."""

    def __init__(self, path: Path, **options: object) -> None:
        residency = Residency(CPU, torch.float32, True)
        given = EngineOptions(artifact=path, **options)
        self.model: LoadedModel = load_model(given, lambda _: residency, lambda *_: None)
        self.runtime = RuntimeConfig(
            CPU, torch.float32, "fp32", LENGTH, pages_for(LENGTH), 1, LENGTH
        )
        self.hidden = torch.empty(0)
        self.taps: list[Tensor] = []

    def batch(self, encoded: Encoded) -> ForwardBatch:
        """All tokens of a sample in one pass, with its media."""
        tokens, pages = encoded.ids.tolist(), list(range(self.runtime.pages))
        sequence = Sequence(tokens, len(tokens), None, pages, 0)
        if encoded.media:
            sequence.media = place_media(len(tokens), encoded.runs, self.rows(encoded))
        return build_batch([Piece(sequence, len(tokens), len(tokens))], CPU)

    def rows(self, encoded: Encoded) -> list[Tensor]:
        """What the vision tower makes of a sample's media."""
        assert self.model.vision is not None and self.model.config.vision is not None
        return [
            encode_media(
                self.model.vision,
                self.model.config.vision,
                torch.from_numpy(media.patches),
                media.grid,
                dtype=torch.float32,
            )
            for media in encoded.media
        ]

    def run(self, batch: ForwardBatch, taps: tuple[int, ...] = ()) -> Tensor:
        """Logits [T, rows]; keeps hidden states and taps."""
        caches = allocate_caches(self.model.config, self.runtime)
        text = self.model.config.text
        self.hidden, self.taps = decode(
            self.model.weights, text, batch, caches, dtype=torch.float32, taps=taps
        )
        return logits(self.model.weights, self.hidden, batch.logit_rows)


class Made:
    """A model and a drafter of the trainer, and where their artifact is."""

    def __init__(self, name: str, folder: Path) -> None:
        self.model: DemoModel
        self.drafter: Drafter
        self.model, self.drafter, self.path = exported(name, folder)


@pytest.fixture(scope="module", params=NAMES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    torch.manual_seed(3)
    return Made(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Made:
    torch.manual_seed(4)
    return Made("tiny", tmp_path_factory.mktemp("seeing"))


@pytest.fixture(scope="module")
def drafting(tmp_path_factory: pytest.TempPathFactory) -> Made:
    torch.manual_seed(5)
    return Made("tiny-moe", tmp_path_factory.mktemp("drafting"))


def assert_equal(engine: Tensor, trainer: Tensor) -> None:
    assert engine.shape == trainer.shape
    assert trainer.abs().max() > 1
    assert (engine - trainer).abs().max() < CLOSE


@torch.no_grad()
def trainer_logits(model: DemoModel, batch, length: int) -> Tensor:
    hidden, _ = model.hidden(model.embed(batch), batch)
    return model.lm_head(hidden)[0, :length]


@pytest.mark.parametrize("task", ["arithmetic", "lists", "tools"])
@torch.inference_mode()
def test_text(made: Made, task: str) -> None:
    batch, encoded = batch_of(task, LENGTH)
    side = Side(made.path)
    want = trainer_logits(made.model, batch, len(encoded.ids))
    assert_equal(side.run(side.batch(encoded)), want)


@torch.inference_mode()
def test_stored_formats_matter(made: Made) -> None:
    """The plain weights give other logits, so equality above is one of the stored values."""
    batch, encoded = batch_of("lists", LENGTH)
    made.model.imitate_storage(False)
    plain = trainer_logits(made.model, batch, len(encoded.ids))
    made.model.imitate_storage(True)
    stored = trainer_logits(made.model, batch, len(encoded.ids))
    assert (plain - stored).abs().max() > 100 * CLOSE


@pytest.mark.parametrize("task", ["image_count", "two_images", "video_change"])
@torch.inference_mode()
def test_media(seeing: Made, task: str) -> None:
    batch, encoded = batch_of(task, LENGTH)
    side = Side(seeing.path, vision=True)
    seen = seeing.model.model.visual(batch.slices, torch.float32)
    assert_equal(torch.cat(side.rows(encoded)), seen)
    want = trainer_logits(seeing.model, batch, len(encoded.ids))
    assert_equal(side.run(side.batch(encoded)), want)


@pytest.mark.parametrize("task", ["lists", "image_position"])
@torch.inference_mode()
def test_mtp(made: Made, seeing: Made, task: str) -> None:
    made = seeing if task.startswith("image") else made
    batch, encoded = batch_of(task, LENGTH)
    side = Side(made.path, spec="mtp", vision=bool(encoded.media))
    rows = side.batch(encoded)
    side.run(rows)
    following = int(encoded.ids[0])
    assert side.model.drafter is not None and isinstance(side.model.drafter.weights, MtpWeights)
    (cache,) = drafter_caches("mtp", side.model.config, side.runtime)
    shifted = shifted_batch(rows, torch.tensor([following]))
    text = side.model.config.text
    got = mtp_forward(
        side.model.drafter.weights, side.model.weights, text, shifted, side.hidden, cache
    )
    embedded = made.model.embed(batch)
    hidden, _ = made.model.hidden(embedded, batch)
    (states,) = made.model.drafts(embedded, hidden, batch, 1)
    # The last row reads the token behind the sample, which only the trainer's padding has.
    count = len(encoded.ids) - 1
    head = full_head(side.model.weights.head, text.addressable)
    assert_equal(proposal_logits(head, got)[:count], made.model.lm_head(states)[0, :count])


@pytest.mark.parametrize("anchor", [30, 7])
@torch.inference_mode()
def test_block_drafter(drafting: Made, anchor: int) -> None:
    batch, encoded = batch_of("lists", LENGTH)
    side = Side(drafting.path, spec="dflash")
    config = side.model.config.dflash
    assert config is not None and side.model.drafter is not None
    size = DRAFTER["block_size"]
    rows = side.batch(encoded)
    side.run(rows, config.target_layers)
    caches = drafter_caches("dflash", side.model.config, side.runtime)
    known = ContextRows(torch.arange(anchor), torch.arange(anchor))
    weights = side.model.drafter.weights
    extend_context(weights, config, [tap[:anchor] for tap in side.taps], known, caches)
    tokens = torch.tensor([int(encoded.ids[anchor])])
    table = rows.rows.page_table
    block = draft_block(tokens, [anchor], [size - 1], table, config.mask_id)
    embedding = side.model.weights.embedding
    got = block_forward(weights, config, embedding, block, caches, dtype=torch.float32)

    model = drafting.model
    _, taps = model.hidden(model.embed(batch), batch, DRAFTER["target_layer_ids"])
    shown = torch.full((1, 1, size), DRAFTER["mask_token_id"])
    shown[0, 0, 0] = tokens
    embedded = functional.embedding(shown, model.model.language_model.embed_tokens.value())
    states = drafting.drafter(taps, embedded, torch.tensor([[anchor]]))
    head = full_head(side.model.weights.head, side.model.config.text.addressable)
    assert_equal(proposal_logits(head, got), model.lm_head(states)[0, 0])
