"""Sizes that attention is launched with: what decides bits, by card, format and head; the rest."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import ceil
from types import MappingProxyType
from typing import Any, Final

from ninfer.errors import ConfigError
from ninfer.json_text import parse_json
from ninfer.ops.tuning import MULTIPROCESSORS

# Up to this many rows a call the splits of the keys run side by side.
FEW: Final = 64
# Splits in memory never take more than this; a call that needs more runs by whole rows.
MOST_PARTIAL_BYTES: Final = 256 << 20
# Cards whose multiprocessors have 164 or 228 KiB of shared memory; others have 100.
_ROOMY: Final = (80, 87, 90, 100, 103)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the kernels for one format and head.

    `keys` of a tile and `split` decide the order of a row's sums, so they are the same for every
    call. The rest does not: `rows` of a tile of a call by whole rows, warps, how many tiles of keys
    are on their way (`stages`), and the `programs` of a multiprocessor that runs splits.
    """

    keys: int
    split: int
    warps: int
    stages: int
    programs: int
    rows: int
    many_warps: int
    many_stages: int


@dataclass(frozen=True, slots=True)
class Head:
    """A head as it is multiplied: `chunks` of `width` columns, the last one maybe cut short."""

    width: int
    chunks: int


def head(dim: int, scale_group: int, least: int) -> Head:
    """Chunks of a head that no scale group's border cuts, with the fewest columns to spare."""
    widths = [width for width in (256, 128, 64, 32) if least <= width <= (scale_group or 256)]
    found = min(widths, key=lambda width: (-(-dim // width) * width, -width))
    return Head(found, -(-dim // found))


def sizes(architecture: int, format: str, dim: int, *, wide: bool) -> Sizes:
    """Sizes for a KV format and head on an architecture; `wide`: products of float32."""
    if wide:
        return _WIDE
    return table(architecture).get(f"{format} {dim}") or default_sizes(architecture, format, dim)


# Products of float32 run without the matrix instruction; they are for tests, not for serving.
_WIDE: Final = Sizes(
    keys=32, split=512, warps=4, stages=1, programs=1, rows=16, many_warps=4, many_stages=1
)


def default_sizes(architecture: int, format: str, dim: int) -> Sizes:
    """Sizes by rule: two programs on a multiprocessor where their tiles of keys fit, else one.

    A tile of bytes is decoded anew by every four warps, so more rows by more warps gain nothing.
    """
    roomy, is_bytes = architecture in _ROOMY, format in ("int8", "fp8", "int4")
    keys = 64 if roomy else 32
    tile = 2 * keys * dim * (1 if is_bytes else 2)
    large = roomy and not is_bytes
    return Sizes(
        keys=keys,
        split=512,
        warps=4,
        stages=3,
        programs=2 if tile <= (40 << 10 if roomy else 20 << 10) else 1,
        rows=64 if large else 32,
        many_warps=8 if large and dim > 128 else 4,
        many_stages=3 if is_bytes else 2,
    )


def few_rows(count: int, sequences: int, group: int) -> int:
    """Rows of a tile for `count` tokens of some sequences: 16 where these hold those of one, or 32.

    The matrix instruction would take 8, but then its sums come out in another order on Hopper.
    """
    return 16 if ceil(count / sequences) * group <= 16 else 32


def programs(architecture: int, sizes: Sizes) -> int:
    """Programs that fill a card."""
    return sizes.programs * MULTIPROCESSORS.get(architecture, max(MULTIPROCESSORS.values()))


@cache
def table(architecture: int) -> Mapping[str, Sizes]:
    """Measured sizes of an architecture by format and head; empty when there is no table."""
    resource = files("ninfer.ops").joinpath("tables", f"attention_{architecture}.json")
    if not resource.is_file():
        return MappingProxyType({})
    where = f"ops/tables/attention_{architecture}.json"
    return parse_table(parse_json(resource.read_text(encoding="utf-8"), where, ConfigError), where)


def parse_table(content: Any, where: str) -> Mapping[str, Sizes]:
    """The sizes of a table's JSON value. Raises ConfigError, naming the entry, for wrong ones."""
    found = {}
    for key, entry in content["attention"].items():
        try:
            found[key] = Sizes(**{name: value for name, value in entry.items() if name != "source"})
        except TypeError as error:
            raise ConfigError(f"{where}: {key}: {error}") from None
        _check(found[key], f"{where}: {key}")
    return MappingProxyType(found)


def _check(found: Sizes, where: str) -> None:
    allowed = {
        "keys": (16, 32, 64, 128),
        "split": (256, 512, 1024, 2048),
        "rows": (16, 32, 64, 128),
        "many_stages": (1, 2, 3, 4),
        "warps": (1, 2, 4, 8),
        "many_warps": (1, 2, 4, 8),
        "stages": (1, 2, 3, 4, 5),
        "programs": (1, 2, 3, 4),
    }
    for name, values in allowed.items():
        if getattr(found, name) not in values:
            raise ConfigError(f"{where}: {name} is {getattr(found, name)}, must be in {values}")
