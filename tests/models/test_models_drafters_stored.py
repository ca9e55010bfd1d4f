"""Drafters bound from artifact files, in the formats that files hold, against second formulas."""

from pathlib import Path

import drafter_formulas as formulas
import numpy as np
import pytest
import torch
from drafter_scene import Pages, empty_caches
from torch import Tensor

from ninfer.artifact import Artifact, open_artifact
from ninfer.artifact.migrate import migrate_to_v3
from ninfer.convert import synthesise
from ninfer.engine.contents import read_contents
from ninfer.formats import dequantise
from ninfer.models import ModelConfig
from ninfer.models.forward_batch import ForwardBatch
from ninfer.models.parameters import ParameterTable, Piece
from ninfer.models.qwen3_6 import (
    ContextRows,
    TextWeights,
    bind_dflash,
    bind_dflash2,
    bind_draft_head,
    bind_mtp,
    block_forward,
    draft_block,
    extend_context,
    full_head,
    greedy_drafts,
    mtp_forward,
    select_drafts,
)
from ninfer.models.qwen3_6.block_weights import block_cache_spec
from ninfer.models.qwen3_6.model_map import model_map_of
from ninfer.models.qwen3_6.mtp import mtp_cache_spec
from ninfer.models.stored_rows import StoredRows
from ninfer.ops.tensors import Weight

COUNT = 6


class Stored:
    """An opened artifact, as the words that it holds and as the numbers that these stand for."""

    def __init__(self, path: Path) -> None:
        self.artifact: Artifact = open_artifact(path)
        contents = read_contents(self.artifact)
        self.config: ModelConfig = contents.config
        self.places: ParameterTable = contents.table

    def __call__(self, name: str) -> Weight:
        return self.artifact.tensor(name)

    def value(self, name: str) -> Tensor:
        stored = self.artifact.tensor(name)
        return stored.double() if isinstance(stored, Tensor) else dequantise(stored, torch.float64)

    def named(self, prefix: str) -> dict[str, np.ndarray]:
        names = [name for name in self.artifact.names if name.startswith(prefix)]
        return {name: self.value(name).numpy() for name in names}

    def target(self) -> TextWeights:
        """Of the target, drafters read the embedding and a head."""
        norm, head = self.artifact.tensor("text/final_norm"), self("text/output_head")
        assert isinstance(norm, Tensor)
        return TextWeights(self("text/token_embedding"), (), norm, head)


class Apart(Stored):
    """The same artifact with every parameter in an object of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._whole = self.places
        self.places = {
            name: (Piece(name, 0, sum(piece.stop - piece.start for piece in pieces)),)
            for name, pieces in self._whole.items()
        }

    def __call__(self, name: str) -> Weight:
        if name in self.artifact.names:
            return super().__call__(name)
        return StoredRows(super().__call__, self._whole, [name]).take(name)


@pytest.fixture(scope="module")
def paths(
    micro_artifacts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    path = tmp_path_factory.mktemp("drafters") / "dflash2.ninfer"
    synthesise(path, like="qwen3.8-27b/nvfp4", scale="micro", drafter="dflash2", seed=4)
    return {**micro_artifacts, "dflash2": path}


@pytest.fixture(params=["v2", "v3", "apart"])
def form(request: pytest.FixtureRequest) -> str:
    return request.param


def opened(path: Path, form: str, folder: Path) -> Stored:
    if form == "apart":
        return Apart(path)
    stored = Stored(path)
    if form == "v2":
        return stored
    target = folder / "v3.ninfer"
    migrate_to_v3(stored.artifact, target, model_map_of(stored.artifact.directory, stored.config))
    return Stored(target)


@pytest.mark.parametrize("kind", ["dense", "moe", "dflash2"])
def test_e7_stored_mtp_and_both_heads(
    paths: dict[str, Path], kind: str, form: str, tmp_path: Path
) -> None:
    stored = opened(paths[kind], form, tmp_path)
    text, attention = stored.config.text, stored.config.text.attention
    pages = Pages.of(1, COUNT)
    positions = torch.arange(COUNT)
    batch = ForwardBatch(
        torch.randint(0, text.addressable, (COUNT,)),
        positions.expand(3, -1),
        pages.rows([(0, COUNT)]),
        torch.tensor(pages.slots(0, 0, COUNT)),
        torch.tensor([], dtype=torch.int64),
    )
    hidden = torch.randn(COUNT, text.hidden, dtype=torch.float64)
    (cache,) = empty_caches(mtp_cache_spec(text), pages.count)
    weights = bind_mtp(stored, stored.config, stored.places)
    got = mtp_forward(weights, stored.target(), text, batch, hidden, cache)
    heads = formulas.Heads(
        attention.query_heads, attention.kv_heads, attention.head_dim, attention.rotary_dim
    )
    want = formulas.mtp(
        stored.named("mtp/"),
        heads,
        stored.value("text/token_embedding").numpy(),
        batch.tokens.tolist(),
        [(p, p, p) for p in range(COUNT)],
        hidden.numpy(),
        top_k=text.moe.top_k if text.moe else 0,
    )
    assert abs(got.numpy() - want).max() < 1e-8
    ids = stored.value("text/draft_head_token_ids").long().tolist()
    whole = list(range(text.addressable))
    for head, name, tokens in (
        (full_head(stored("text/output_head"), text.addressable), "text/output_head", whole),
        (bind_draft_head(stored, stored.config, stored.places), "text/draft_head", ids),
    ):
        table = stored.value(name).numpy()
        best = [formulas.best_ids(table, tokens, row, 1)[0][1] for row in want]
        assert greedy_drafts(head, got).tolist() == best


@pytest.mark.parametrize("kind", ["moe", "dflash2"])
def test_e7_stored_block_drafters(
    paths: dict[str, Path], kind: str, form: str, tmp_path: Path
) -> None:
    stored = opened(paths[kind], form, tmp_path)
    text, frontier = stored.config.text, 5
    if kind == "moe":
        config = stored.config.dflash
        assert config is not None
        weights = bind_dflash(stored, stored.config, stored.places)
        windows, prefix = [config.window, None], "dflash"
    else:
        config = stored.config.dflash2
        assert config is not None
        bound = bind_dflash2(stored, stored.config, stored.places)
        weights, windows, prefix = bound.drafter, [config.window] * config.layers, "dflash2"
    taps = len(config.target_layers)
    features = torch.randn(frontier, taps * text.hidden, dtype=torch.float64)
    pages = Pages.of(1, frontier)
    caches = empty_caches(block_cache_spec(config), pages.count)
    rows = ContextRows(torch.arange(frontier), torch.tensor(pages.slots(0, 0, frontier)))
    extend_context(weights, config, features.split(text.hidden, dim=-1), rows, caches)
    block = draft_block(torch.tensor([9]), [frontier], [COUNT], pages.table, config.mask_id)
    embedding = stored("text/token_embedding")
    got = block_forward(weights, config, embedding, block, caches, dtype=torch.float64)
    want = formulas.block_drafter(
        stored.named(f"{prefix}/"),
        prefix,
        formulas.Heads(config.query_heads, config.kv_heads, config.head_dim, config.head_dim),
        windows,
        stored.value("text/token_embedding").numpy(),
        features.numpy(),
        [9] + [config.mask_id] * COUNT,
        taps=2 if kind == "dflash2" else 0,
    )
    assert abs(got.numpy() - want).max() < 1e-8
    head = full_head(stored("text/output_head"), text.addressable)
    table, ids = stored.value("text/output_head").numpy(), list(range(text.addressable))
    if kind == "moe":
        best = [formulas.best_ids(table, ids, row, 1)[0][1] for row in want]
        assert greedy_drafts(head, got).tolist() == best
        return
    u = torch.rand(COUNT)
    for heat in (0.0, 1.0):
        drafts = select_drafts(
            bound.selector,
            head,
            got,
            block,
            top_k=config.selector_top_k,
            temperature=torch.tensor([heat]),
            u=u,
        )
        walk = formulas.selected(
            stored.named("dflash2/"),
            table,
            ids,
            want,
            9,
            config.selector_top_k,
            heat,
            u.tolist(),
        )
        assert drafts.tokens.tolist() == [token for token, _, _ in walk]
        chances = torch.tensor([chances for _, _, chances in walk])
        assert (drafts.probabilities - chances).abs().max() < 1e-6
