"""The search for launch sizes: what it tries, what it never chooses, and the table it leaves."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ninfer.bench import keeper, tune
from ninfer.bench.timer import Timing
from ninfer.bench.tune import Trial, candidates, search, shapes
from ninfer.cli.main import main
from ninfer.errors import ConfigError, GenerationError
from ninfer.json_text import parse_json
from ninfer.ops import tuning
from ninfer.ops.tiers import ARCHITECTURES
from ninfer.ops.tuning import Shape, Tile

SHAPE = Shape("Q4G64_F16S", 256, 256, paired=True)


def test_shapes_are_those_of_the_models():
    keys = {shape.key for shape in shapes()}
    assert {
        "Q4G64_F16S 34816x5120 paired",
        "Q5G64_F16S 5120x17408",
        "Q6G64_F16S 248320x5120",
        "W8G32_F16S 12288x2048",
        "NVFP4 34816x5120",
        "BF16 48x5120",
        "Q4G64_F16S 34816x5120 paired many",
    } <= keys
    assert "Q6G64_F16S 248320x5120 many" not in keys


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_candidates_are_different_legal_and_begin_with_the_rule(architecture: int):
    for shape in shapes():
        tiles = candidates(architecture, shape)
        assert tiles[0] == tuning.default_tile(architecture, shape)
        assert 2 < len(set(tiles)) == len(tiles) <= 60
        entries = {str(i): tuning.table_entry(tile, "x") for i, tile in enumerate(tiles)}
        assert list(tuning.parse_table({"tiles": entries}, "t").values()) == tiles


def trial(tile: Tile, **seconds: float) -> Trial:
    timings = {int(name[1:]): Timing(x, x, x, 1) for name, x in seconds.items()}
    return Trial(tile, timings)


def test_the_fastest_right_candidate_wins():
    wrong, slow, fast = (Tile(32, 1, 1, stages, 1) for stages in (2, 3, 4))
    found = {slow: trial(slow, n16=2.0, n64=1.0), fast: trial(fast, n16=1.5, n64=2.0)}
    before = []

    def tried(tile: Tile, best: Trial | None) -> Trial | None:
        before.append(None if best is None else best.tile)
        return found.get(tile)

    assert search([wrong, slow, fast, slow], tried).tile == fast
    assert before == [None, None, slow, fast]
    with pytest.raises(GenerationError, match="no candidate was right"):
        search([wrong], tried)


class FakeCard:
    """Counts what is timed; the first calls are the fastest."""

    device, architecture = torch.device("cpu"), 90

    def __init__(self, step: float = 1.0) -> None:
        self.timed, self.step = 0, step

    def replayed(
        self, calls: list[Callable[[], object]], *, repeats: int = 7, settle_s: float = 1.0
    ) -> Timing:
        self.timed += 1
        seconds = 1 + self.step * self.timed
        return Timing(seconds, seconds, seconds, repeats)


@pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
@pytest.mark.parametrize("broken", [False, True])
def test_only_what_is_right_is_timed(broken: bool, monkeypatch: pytest.MonkeyPatch):
    """The search itself, over interpreted kernels: a candidate with a wrong result is left out."""
    first, second = Tile(32, 1, 1, 1, 1), Tile(64, 2, 1, 1, 1)
    monkeypatch.setattr(tune, "candidates", lambda architecture, shape: [first, second])
    monkeypatch.setattr(tune, "rotated", lambda weight, card: [weight])
    monkeypatch.setattr(tune, "FEW", (16,))
    product = tune._product

    def sometimes_wrong(shape: Shape, x: torch.Tensor, weight: object) -> torch.Tensor:
        got = product(shape, x, weight)
        return got * 1.1 if broken and tuning._forced == first else got

    monkeypatch.setattr(tune, "_product", sometimes_wrong)
    # What is hopeless is timed shortly, what is not, at length as well.
    for step, times in ((1.0, 2), (0.01, 3)):
        card = FakeCard(step)
        monkeypatch.setattr(tune, "replayed", card.replayed)
        with tune.using("portable", only=["linear_swiglu"]):
            best = tune._tuned(card, SHAPE)
        assert best.tile == (second if broken else first)
        assert card.timed == (1 if broken else times)


def test_jobs_need_each_kernel_once():
    wanted = [shape for shape in shapes() if shape.format == "Q4G64_F16S"]
    found = tune.jobs(90, wanted)
    every = [
        (s, n, t)
        for s in wanted
        for n in (tune.MANY if s.many else tune.FEW)
        for t in candidates(90, s)
    ]
    assert 3 * len(found) < len(every)

    def kernel(shape: Shape, tokens: int, tile: Tile) -> tuple[object, ...]:
        sizes = (tile.rows, tile.warps, tile.stages, tile.unroll, tile.tokens, tile.splits > 1)
        return (shape.paired, shape.many, tokens, *sizes)

    kernels = [kernel(shape, tokens, tile) for _, shape, tokens, tile in found]
    assert len(set(kernels)) == len(kernels)
    assert set(kernels) == {kernel(*each) for each in every}


def test_the_table_keeps_what_it_held_and_is_whole_after_each_entry(tmp_path: Path):
    path = tmp_path / "sm_90.json"
    old, new = Tile(64, 1, 2, 3, 1), Tile(128, 4, 4, 3, 2)
    keeper(path, "first")(SHAPE, old)
    other = Shape("BF16", 48, 64)
    keep = keeper(path, "second")
    keep(other, new)
    content = parse_json(path.read_text(encoding="utf-8"), "table", ConfigError)
    assert tuning.parse_table(content, "table") == {SHAPE.key: old, other.key: new}
    assert content["tiles"][SHAPE.key]["source"] == "first"
    keep(SHAPE, new)
    content = parse_json(path.read_text(encoding="utf-8"), "table", ConfigError)
    assert tuning.parse_table(content, "table")[SHAPE.key] == new
    path.write_text('{"tiles": {"k": {"rows": 1}}}', encoding="utf-8")
    with pytest.raises(ConfigError, match="k: "):
        keeper(path, "third")


def test_a_machine_without_a_card_is_refused(capsys: pytest.CaptureFixture[str]):
    assert main(["bench", "tune"]) != 0
    assert "tune: this machine has no CUDA device" in capsys.readouterr().err
    assert main(["bench", "formats", "--table", "x"]) != 0
    assert "--table: formats finds no launch sizes" in capsys.readouterr().err
