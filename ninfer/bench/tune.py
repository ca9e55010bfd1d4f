"""Search the launch sizes of the Triton products on this card, for the shapes of the models.

Every kernel of the candidates is compiled first, on all cores; then, shape by shape, each candidate
is compared with the float64 reference and only then timed: shortly, and at length if it may win.
The best by time becomes the shape's entry in the table `ops/tables/sm_NN.json`, which `--table`
writes.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import get_context
from typing import Final

import torch
from torch import Tensor

from ninfer.bench.card import Card, rotated
from ninfer.bench.replay import replayed
from ninfer.bench.report import Row, rate_row
from ninfer.bench.timer import Timing
from ninfer.errors import GenerationError
from ninfer.formats import quantise
from ninfer.models.qwen3_6.products import meta_weight, products
from ninfer.models.qwen3_6.recipe import recipe_for
from ninfer.models.registry import REGISTERED
from ninfer.ops import aot, linear, linear_swiglu, resident
from ninfer.ops.dispatch import REFERENCE, TRITON, set_backend, using
from ninfer.ops.launch import TOO_LARGE
from ninfer.ops.tensors import StoredWeight, Weight
from ninfer.ops.tolerance import criterion
from ninfer.ops.tuning import Shape, Tile, default_tile, forcing

# Token counts that are timed: a tile of the few-token route each, and a prefill chunk.
FEW: Final = (16, 64)
MANY: Final = (2048,)
# What the time of each count weighs in the choice: decoding is mostly the smallest tile.
_WEIGHTS: Final = {16: 3.0, 64: 1.0, 2048: 1.0}
# Rows, warps, stages and unroll. All of twelve shapes measured before chose 128 rows by four warps,
# ten of them three stages: around that the choice is fine, elsewhere coarse.
_FEW_SIZES: Final = (
    (128, 4, 3, 1),
    (128, 4, 4, 1),
    (128, 4, 5, 1),
    (128, 4, 3, 2),
    (256, 8, 3, 1),
    (64, 2, 3, 1),
    (64, 2, 5, 1),
    (32, 1, 4, 1),
)
_MANY_ROWS_AND_WARPS: Final = ((128, 4), (128, 8), (256, 8))
# A head is asked for the last row of each sequence only.
_HEAD_ROWS: Final = 100_000
# The others that read weights have their own sizes.
_TUNED: Final = ("linear", "linear_swiglu")
_SPLITS: Final = (1, 2, 4, 8, 16, 32)
# A short timing that is this much slower than the best so far ends a candidate's trial.
_HOPELESS: Final = 1.15
_SHORT: Final = 2
_LEAST_SPLIT: Final = 256


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate that was right, with its seconds by token count."""

    tile: Tile
    seconds: Mapping[int, Timing]

    @property
    def score(self) -> float:
        """Weighted seconds; less is better."""
        return sum(_WEIGHTS[count] * timing.median for count, timing in self.seconds.items())


def shapes() -> list[Shape]:
    """Every product shape of the registered models once, few tokens first, then many."""
    found: dict[str, Shape] = {}
    for (_, weights_id), config in REGISTERED.items():
        for op, weight in products(config, recipe_for(config, weights_id)):
            if op not in _TUNED:
                continue
            form = "BF16" if isinstance(weight, Tensor) else weight.format
            is_paired = op == "linear_swiglu" and form.endswith("F16S") and form[0] in "QW"
            shape = Shape(form, weight.shape[0], weight.shape[1], is_paired)
            found.setdefault(shape.key, shape)
    few = list(found.values())
    return few + [replace(shape, many=True) for shape in few if shape.rows < _HEAD_ROWS]


def candidates(architecture: int, shape: Shape) -> list[Tile]:
    """Sizes worth a trial, the rule's own among them and first."""
    first = default_tile(architecture, shape)
    if shape.many:
        many = product(_MANY_ROWS_AND_WARPS, (64, 128), (2, 3, 4))
        tried = [Tile(r, 1, w, stages, 1, tokens) for (r, w), tokens, stages in many]
    else:
        splits = [s for s in _SPLITS if s == 1 or shape.columns // s >= _LEAST_SPLIT]
        few = product(_FEW_SIZES, splits)
        tried = [Tile(r, s, w, stages, unroll) for (r, w, stages, unroll), s in few]
        tried = [tile for tile in tried if _fills(architecture, shape, tile)]
    return [first, *(tile for tile in tried if tile != first)]


def search(tiles: Iterable[Tile], trial: Callable[[Tile, Trial | None], Trial | None]) -> Trial:
    """The best of the tiles; `trial` gets the best so far and gives None for what cannot win.

    Raises GenerationError when there was none that ran and was right.
    """
    best: Trial | None = None
    for tile in tiles:
        found = trial(tile, best)
        if found is not None and (best is None or found.score < best.score):
            best = found
    if best is None:
        raise GenerationError("no candidate was right; nothing was chosen")
    return best


def tune_card(
    chosen: Sequence[Shape] | None = None, keep: Callable[[Shape, Tile], None] | None = None
) -> list[Row]:
    """Tune all shapes on this card; `keep` gets each winner as soon as it is found.

    The figures are the winners' read rates of weight bytes beside a copy of memory. Raises
    GenerationError for a shape of which no candidate is right.
    """
    card = Card.first()
    set_backend(TRITON, card.architecture)
    wanted = list(chosen or shapes())
    _compile(card.architecture, wanted)
    roof = ("memory copy", card.copy_rate())
    rows: list[Row] = []
    for shape in wanted:
        best = _tuned(card, shape)
        if keep is not None:
            keep(shape, best.tile)
        rows += _rows(shape, best, roof)
    return rows


def make_weight(shape: Shape, device: torch.device | str) -> StoredWeight:
    """Random numbers in the form of a shape, the same for every candidate."""
    generator = torch.Generator(device).manual_seed(0)
    size = (shape.rows, shape.columns)
    values = torch.randn(size, device=device, generator=generator, dtype=torch.bfloat16)
    values *= shape.columns**-0.5
    return values if shape.format == "BF16" else quantise(values, shape.format)


def _tuned(card: Card, shape: Shape) -> Trial:
    stored = make_weight(shape, card.device)
    counts = MANY if shape.many else FEW
    inputs = {n: torch.randn(n, shape.columns, device=card.device).bfloat16() for n in counts}
    weight = resident(stored, paired=shape.paired)
    with using(REFERENCE):
        wanted = {n: _product(shape, x.double(), stored) for n, x in inputs.items()}
    copies = rotated(weight, card)

    def trial(tile: Tile, best: Trial | None) -> Trial | None:
        try:
            with forcing(tile):
                seconds = {}
                for count, x in inputs.items():
                    got = _product(shape, x, weight)
                    if criterion(got.dtype).violation(got, wanted[count]) is not None:
                        return None
                for count, x in inputs.items():
                    calls = [_call(shape, x, each) for each in copies]
                    if best is not None:
                        short = replayed(calls, repeats=_SHORT, settle_s=0.0)
                        if short.fastest > _HOPELESS * best.seconds[count].median:
                            return None
                    seconds[count] = replayed(calls)
                return Trial(tile, seconds)
        except TOO_LARGE:
            torch.cuda.synchronize(card.device)
            return None

    return search(candidates(card.architecture, shape), trial)


def _product(shape: Shape, x: Tensor, weight: Weight) -> Tensor:
    return linear_swiglu(x, weight) if shape.paired else linear(x, weight)


def _call(shape: Shape, x: Tensor, weight: Weight) -> Callable[[], Tensor]:
    return lambda: _product(shape, x, weight)


def _rows(shape: Shape, best: Trial, roof: tuple[str, float]) -> Iterator[Row]:
    stored = meta_weight(shape.format, (shape.rows, shape.columns))
    gigabytes = stored.nbytes / 1e9
    tile = best.tile
    sizes = f"{tile.rows} rows, {tile.splits} splits, {tile.warps} warps, {tile.stages} stages"
    for count, timing in best.seconds.items():
        named: dict[str, int | str] = {"tokens": count, "sizes": f"{sizes}, unroll {tile.unroll}"}
        yield rate_row(shape.key, named, "GB/s", gigabytes, timing, roof)


def _fills(architecture: int, shape: Shape, tile: Tile) -> bool:
    """Whether a tile has about as many programs as the rule's own: half to four times."""
    usual = default_tile(architecture, shape)
    programs = -(-shape.rows // tile.rows) * tile.splits
    reference = -(-shape.rows // usual.rows) * usual.splits
    return reference <= 2 * programs and programs <= 4 * reference


def jobs(architecture: int, wanted: Sequence[Shape]) -> list[tuple[int, Shape, int, Tile]]:
    """Architecture, shape, tokens and sizes that between them need every kernel of the search.

    Rows, columns and the number of splits are no part of a kernel, only whether there are several.
    """
    found: dict[tuple[object, ...], tuple[int, Shape, int, Tile]] = {}
    for shape in wanted:
        for tokens in MANY if shape.many else FEW:
            for tile in candidates(architecture, shape):
                kernel = replace(tile, splits=min(tile.splits, 2))
                key = (shape.format, shape.paired, shape.many, tokens, kernel)
                found.setdefault(key, (architecture, shape, tokens, tile))
    return list(found.values())


def _compile(architecture: int, wanted: Sequence[Shape]) -> None:
    """Compile all of that on all cores, so that the card's time goes to timing."""
    tasks = jobs(architecture, wanted)
    with ProcessPoolExecutor(os.cpu_count() or 1, mp_context=get_context("spawn")) as pool:
        list(pool.map(_compile_one, tasks, chunksize=4))


def _compile_one(task: tuple[int, Shape, int, Tile]) -> None:
    architecture, shape, tokens, tile = task
    set_backend(TRITON, architecture)
    found: list[aot.Compiled] = []
    with aot.compiling(architecture, found), forcing(tile):
        _meta_call(shape, tokens)()


def _meta_call(shape: Shape, count: int) -> Callable[[], Tensor]:
    stored = meta_weight(shape.format, (shape.rows, shape.columns))
    x = torch.empty(count, shape.columns, dtype=torch.bfloat16, device="meta")
    return _call(shape, x, resident(stored, paired=shape.paired))
