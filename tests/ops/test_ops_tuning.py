"""Launch sizes: the tables that ship, the rule without one, and that tokens do not decide them."""

from dataclasses import replace
from pathlib import Path

import pytest

from ninfer.errors import ConfigError
from ninfer.json_text import parse_json
from ninfer.ops import tuning
from ninfer.ops.linear.plan import FEW, TOKEN_TILES, plan
from ninfer.ops.tiers import ARCHITECTURES
from ninfer.ops.tuning import Shape, Tile

SHAPES = [
    Shape("Q4G64_F16S", 34816, 5120, paired=True),
    Shape("Q5G64_F16S", 5120, 17408),
    Shape("Q6G64_F16S", 248320, 5120),
    Shape("W8G32_F16S", 2048, 4096),
    Shape("BF16", 48, 90),
]
TABLES = sorted(Path(tuning.__file__).with_name("tables").glob("sm_*.json"))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.key)
def test_all_few_row_plans_of_a_shape_share_everything_but_the_token_tile(
    shape: Shape, architecture: int
):
    plans = {count: plan(architecture, shape, count) for count in range(1, FEW + 1)}
    assert len({replace(found, tokens=0) for found in plans.values()}) == 1
    for count, found in plans.items():
        assert found.tokens == min(size for size in TOKEN_TILES if size >= count)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.key)
def test_splits_cover_the_columns_once(shape: Shape, architecture: int):
    blocks = -(-shape.columns // 64)
    for count in (1, 65):
        found = plan(architecture, replace(shape, many=count > FEW), count)
        assert (found.splits - 1) * found.share < blocks <= found.splits * found.share
        assert blocks % found.unroll == 0 and found.share % found.unroll == 0


def test_rule_fills_the_card_and_keeps_splits_long():
    for shape in SHAPES:
        found = tuning.default_tile(90, shape)
        assert shape.columns // found.splits >= 512 or found.splits == 1
    # 272 and 40 blocks of rows for 132 multiprocessors with four programs each.
    assert tuning.default_tile(90, SHAPES[0]).splits == 2
    assert tuning.default_tile(90, SHAPES[1]).splits == 16


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_tables_that_ship_are_read(path: Path):
    architecture = int(path.stem.removeprefix("sm_"))
    tiles = tuning.table(architecture)
    content = parse_json(path.read_text(encoding="utf-8"), path.name, ConfigError)
    assert tiles and set(tiles) == set(content["tiles"])
    assert all(entry["source"] for entry in content["tiles"].values())
    for shape in SHAPES:
        if shape.key in tiles:
            assert tuning.tile(architecture, shape) is tiles[shape.key]


def test_an_architecture_without_a_table_goes_by_rule():
    assert tuning.table(87) == {}
    assert tuning.tile(87, SHAPES[0]) == tuning.default_tile(87, SHAPES[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 48}, "t: k: rows is 48, must be in"),
        ({"warps": 3}, "t: k: warps is 3"),
        ({"tokens": 8}, "t: k: tokens is 8"),
        ({"splits": 0}, "t: k: splits and stages must be at least 1"),
        ({"threads": 1}, "t: k: .*threads"),
    ],
)
def test_wrong_entries_are_refused(change: dict[str, int], message: str):
    entry = tuning.table_entry(Tile(32, 1, 1, 3, 1), "test") | change
    with pytest.raises(ConfigError, match=message):
        tuning.parse_table({"tiles": {"k": entry}}, "t")


def test_an_entry_is_read_as_it_was_written():
    tile = Tile(rows=64, splits=5, warps=2, stages=4, unroll=2, tokens=128)
    assert tuning.parse_table({"tiles": {"k": tuning.table_entry(tile, "x")}}, "t") == {"k": tile}
