"""Launch sizes of the Triton kernels for a card and a shape: the tables, and the rule without one.

Nothing is tuned at run time. `tables/sm_NN.json` holds what `ninfer bench tune` measured on cards
of one architecture; a shape that no table names gets its sizes by the rule here. Sizes never depend
on the number of tokens up to 64, because they decide the order of the sums.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from ninfer.errors import ConfigError
from ninfer.json_text import parse_json

# Architectures (ten times the compute capability) with their usual number of multiprocessors.
MULTIPROCESSORS: Final[Mapping[int, int]] = MappingProxyType(
    {80: 108, 86: 82, 89: 128, 90: 132, 100: 148, 120: 170}
)
# Programs a multiprocessor should have at least, so that loads of one hide behind another. With two
# of four warps one H200 was at 13 % of its warps; of eleven measured shapes the best splits had
# from 1.9 to 8.2 programs.
_WAVES: Final = 4
# A split shorter than this many columns costs more to add up than it saves.
_LEAST_SPLIT: Final = 512


@dataclass(frozen=True, slots=True)
class Tile:
    """Sizes of one product kernel.

    `rows` are the weight rows of a program, `tokens` its tokens (0: as few as hold the call),
    `splits` the parts of the columns that are summed apart, `unroll` the blocks of columns of one
    pass of the loop.
    """

    rows: int
    splits: int
    warps: int
    stages: int
    unroll: int
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """What sizes are chosen by: the stored form of a weight and its logical shape."""

    format: str
    rows: int
    columns: int
    paired: bool = False
    many: bool = False  # more tokens than the few-token route takes

    @property
    def key(self) -> str:
        """The name in a table."""
        parts = [self.format, f"{self.rows}x{self.columns}"]
        return " ".join(parts + ["paired"] * self.paired + ["many"] * self.many)


_forced: Tile | None = None


@contextmanager
def forcing(tile: Tile) -> Iterator[None]:
    """Launch every product inside the `with` by these sizes; process-wide, for tuning and tests."""
    global _forced
    before, _forced = _forced, tile
    try:
        yield
    finally:
        _forced = before


def tile(architecture: int, shape: Shape) -> Tile:
    """The sizes for a shape on an architecture, from its table or else by rule."""
    if _forced is not None:
        return _forced
    return table(architecture).get(shape.key) or default_tile(architecture, shape)


def default_tile(architecture: int, shape: Shape) -> Tile:
    """Sizes by rule: 128 rows a program, and splits until four programs a multiprocessor."""
    if shape.many:
        return Tile(rows=128, splits=1, warps=4, stages=3, unroll=1, tokens=64)
    rows, warps = (128, 4) if shape.rows >= 2048 else (32, 1)
    blocks = -(-shape.rows // rows)
    wanted = _WAVES * MULTIPROCESSORS.get(architecture, max(MULTIPROCESSORS.values()))
    splits = 1
    while blocks * splits < wanted and shape.columns // (2 * splits) >= _LEAST_SPLIT:
        splits *= 2
    return Tile(rows, splits, warps, stages=3, unroll=1)


@cache
def table(architecture: int) -> Mapping[str, Tile]:
    """Measured sizes of an architecture by shape key; empty when there is no table."""
    resource = files("ninfer.ops").joinpath("tables", f"sm_{architecture}.json")
    if not resource.is_file():
        return MappingProxyType({})
    where = f"ops/tables/sm_{architecture}.json"
    return parse_table(parse_json(resource.read_text(encoding="utf-8"), where, ConfigError), where)


def parse_table(content: Any, where: str) -> Mapping[str, Tile]:
    """The tiles of a table's JSON value. Raises ConfigError, naming the entry, for wrong ones."""
    tiles = {}
    for key, entry in content["tiles"].items():
        try:
            found = Tile(**{name: value for name, value in entry.items() if name != "source"})
        except TypeError as error:
            raise ConfigError(f"{where}: {key}: {error}") from None
        _check(found, f"{where}: {key}")
        tiles[key] = found
    return MappingProxyType(tiles)


def table_entry(found: Tile, source: str) -> dict[str, int | str]:
    """A tile as its entry in a table, with where it comes from."""
    return {**asdict(found), "source": source}


def _check(found: Tile, where: str) -> None:
    allowed = {
        "rows": (32, 64, 128, 256),
        "warps": (1, 2, 4, 8),
        "unroll": (1, 2, 4),
        "tokens": (0, 16, 32, 64, 128),
    }
    for name, values in allowed.items():
        if getattr(found, name) not in values:
            raise ConfigError(f"{where}: {name} is {getattr(found, name)}, must be in {values}")
    if found.splits < 1 or found.stages < 1:
        raise ConfigError(f"{where}: splits and stages must be at least 1")
