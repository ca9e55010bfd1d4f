"""Triton forms of sampling, interpreted: draws, routes, rules, company, refusals."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ninfer import ops
from ninfer.errors import UnsupportedError
from ninfer.ops import dispatch
from ninfer.ops.sampling import five_launches
from ninfer.ops.sampling.kernels.bins import COPIES
from ninfer.ops.tensors import AllowedTokens, DrawSettings, TokenBias, TokenPenalties
from ninfer.ops.tiers import PORTABLE

# Triton 3.6's interpreter makes scalars of arrays for every range with a run-time bound.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

# Quantiles 0.999 of the chi-square law by degrees of freedom.
CHI_SQUARE = {2: 13.82, 4: 18.47, 9: 27.88}


@pytest.fixture(autouse=True)
def portable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Programs without work cost the interpreter time; how many rank decides nothing.
    monkeypatch.setattr(five_launches, "_RANKERS", (1, 1, 1))
    with dispatch.using("portable", only=PORTABLE.ops):
        yield


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two logits in question are too many: rows are looked through whole."""
    monkeypatch.setattr(five_launches, "ROOM", 1)


def settings(rows: int, *, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0) -> dict[str, Tensor]:
    return {
        "temperature": torch.full((rows,), temperature, dtype=torch.float64),
        "top_k": torch.full((rows,), top_k),
        "top_p": torch.full((rows,), top_p, dtype=torch.float64),
        "min_p": torch.full((rows,), min_p, dtype=torch.float64),
    }


def reference(logits: Tensor, **arguments: Any) -> Tensor:
    with dispatch.using("reference"):
        return ops.sample(logits, **arguments)


# Probabilities 0.1, 0.4, 0.2, 0.1, 0.2: ranked 1, 2, 4, 0, 3 with ties by id.
LOGITS = [math.log(p) for p in (1.0, 4.0, 2.0, 1.0, 2.0)]
LOGITS[4], LOGITS[3] = LOGITS[2], LOGITS[0]
CUTS = [
    ({}, [1, 2, 4, 0, 3]),
    ({"top_k": 1}, [1]),
    ({"top_k": 2}, [1, 2]),
    ({"top_k": 4}, [1, 2, 4, 0]),
    ({"top_k": 99}, [1, 2, 4, 0, 3]),
    ({"top_p": 0.0}, [1]),
    ({"top_p": 0.39}, [1]),
    ({"top_p": 0.41}, [1, 2]),
    ({"top_p": 0.81}, [1, 2, 4, 0]),
    ({"min_p": 0.49}, [1, 2, 4]),
    ({"min_p": 0.51}, [1]),
    ({"min_p": 1.5}, [1]),
    ({"top_k": 3, "top_p": 0.49}, [1]),
    ({"top_k": 3, "top_p": 0.51}, [1, 2]),
    ({"min_p": 0.49, "top_p": 0.79}, [1, 2, 4]),
    ({"temperature": 0.5, "min_p": 0.2}, [1, 2, 4]),
    ({"temperature": 0.5, "top_p": 0.61}, [1]),
    ({"temperature": 0.0}, [1]),
    ({"temperature": -1.0}, [1]),
    ({"temperature": 1e-45}, [1]),
]


def check_cut(cuts: dict[str, Any], want: list[int]) -> None:
    """In the order of u every kept id is drawn over its share of [0, 1), and no other id is."""
    count = 13
    u = torch.arange(count, dtype=torch.float64) / count
    got = ops.sample(
        torch.tensor([LOGITS]).repeat(count, 1), limit=5, u=u, **settings(count, **cuts)
    )
    heat = cuts.get("temperature", 1.0)
    powers = [math.exp((LOGITS[i] - LOGITS[1]) / heat) if heat > 0 else 1.0 for i in want]
    upto = torch.tensor(powers, dtype=torch.float64).cumsum(0) / math.fsum(powers)
    expected = [want[int((upto <= x).sum())] for x in u]
    assert got.tolist() == expected


@pytest.mark.parametrize(("cuts", "want"), CUTS)
def test_cuts(cuts: dict[str, Any], want: list[int]):
    check_cut(cuts, want)


@pytest.mark.usefixtures("no_room")
@pytest.mark.parametrize(("cuts", "want"), CUTS[::2])
def test_cuts_of_a_row_that_is_looked_through(cuts: dict[str, Any], want: list[int]):
    check_cut(cuts, want)


def test_nucleus_keeps_the_token_that_reaches_it_exactly():
    u = torch.tensor([0.0, 0.4999, 0.5, 1 - 2**-24])
    for top_p, want in ((0.5, [0, 0, 1, 1]), (0.75, [0, 1, 1, 2])):
        got = ops.sample(torch.zeros(4, 4), limit=4, u=u, **settings(4, top_p=top_p))
        assert got.tolist() == want


# Normal logits of these spreads in 4097 ids: lists of one, of some, of nearly all.
SPREADS = {"flat": 0.05, "usual": 3.0, "steep": 30.0}


def mixed(rows: int, spread: float) -> tuple[Tensor, dict[str, Tensor]]:
    """Rows of one spread with settings in no order, u at both ends among them."""
    kinds = {
        "temperature": torch.tensor([0.0, 0.6, 1.0, 1.4]),
        "top_k": torch.tensor([0, 0, 0, 20, 1, 2000]),
        "top_p": torch.tensor([1.0, 0.9, 1.0, 0.3, 0.999]),
        "min_p": torch.tensor([0.0, 0.0, 0.02, 1e-6]),
    }
    own = {name: values[torch.randint(len(values), (rows,))] for name, values in kinds.items()}
    own["u"] = torch.rand(rows)
    own["u"][:2] = torch.tensor([0.0, 1 - 2**-24])
    return torch.randn(rows, 4097) * spread, own


@pytest.mark.parametrize(
    ("spread", "dtype"),
    [("flat", torch.float32), ("usual", torch.bfloat16), ("steep", torch.float16)],
)
def test_draws_equal_the_reference(spread: str, dtype: torch.dtype, monkeypatch):
    """Bins of more logits than have room are among them: half of the flat rows' are."""
    monkeypatch.setattr(five_launches, "ROOM", 200)
    monkeypatch.setattr(five_launches, "_RANKERS", (3, 3, 3))
    logits, own = mixed(8, SPREADS[spread])
    logits = logits.to(dtype)
    got = ops.sample(logits, limit=4096, **own)
    assert torch.equal(got, reference(logits, limit=4096, **own))


@pytest.mark.parametrize("room", [1, 16384])
def test_ties_and_masked_logits(room: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(five_launches, "ROOM", room)
    logits, own = mixed(8, 2.0)
    logits = logits[:, :900].round()
    logits[:, ::3] = -torch.inf
    logits[3] = 1.0
    logits[4, 7:] = -torch.inf
    got = ops.sample(logits, limit=890, **own)
    assert torch.equal(got, reference(logits, limit=890, **own))


@pytest.mark.parametrize("limit", [1, 2, 2047, 2048, 2049, 4096, 4097])
def test_borders_of_the_blocks(limit: int):
    """The best ids stand last, before and behind the limit."""
    logits = torch.arange(5000.0).repeat(4, 1) / 8
    own = settings(4, top_k=2) | {"u": torch.tensor([0.0, 0.4, 0.6, 0.99])}
    own["temperature"][0] = 0
    got = ops.sample(logits, limit=limit, **own)
    assert torch.equal(got, reference(logits, limit=limit, **own))
    assert int(got[0]) == limit - 1


@pytest.mark.parametrize(
    ("cuts", "count"),
    [
        ({"temperature": 0.8}, 10),
        ({"temperature": 1.7, "top_k": 5}, 5),
        ({"temperature": 1.0, "top_k": 5, "top_p": 0.7, "min_p": 0.05}, 3),
    ],
)
def test_draws_follow_the_distribution(cuts: dict[str, Any], count: int):
    """As the reference's test, with the numbers that positions give instead of a generator's."""
    logits = torch.linspace(-1, 1, 10)[torch.randperm(10)]
    ids = logits.argsort(descending=True)[:count]
    powers = (logits[ids].double() / cuts["temperature"]).exp()
    draws = 100
    own = DrawSettings(
        **settings(draws, **cuts),
        seeds=torch.full((draws,), 42),
        positions=torch.arange(draws),
        purposes=torch.full((draws,), int(ops.Purpose.DECODE)),
    )
    got = ops.next_tokens(logits.repeat(draws, 1), own, limit=10)
    observed = (got.unsqueeze(1) == ids).sum(0)
    assert int(observed.sum()) == draws
    expected = powers / powers.sum() * draws
    assert float(((observed - expected) ** 2 / expected).sum()) < CHI_SQUARE[count - 1]


def draw_settings(own: dict[str, Tensor]) -> DrawSettings:
    rows = own["u"].shape[0]
    cuts = {name: value for name, value in own.items() if name != "u"}
    return DrawSettings(
        **cuts,
        seeds=torch.randint(-(2**62), 2**62, (rows,)),
        positions=torch.randint(0, 2**18, (rows,)),
        purposes=torch.randint(0, 6, (rows,)),
    )


def rules(rows: int, vocabulary: int) -> dict[str, Any]:
    ids = torch.stack([torch.randperm(vocabulary)[:4] for _ in range(rows)])
    ids[::2, 2:] = -1
    earlier = torch.randint(-1, vocabulary, (rows, 3))
    earlier[:, 2] = earlier[:, 1]
    return {
        "bias": TokenBias(ids, torch.randn(rows, 4) * 8),
        "penalties": TokenPenalties(
            torch.randint(0, 3, (4, vocabulary), dtype=torch.int32),
            torch.randint(-1, 4, (rows,)),
            earlier,
            torch.rand(rows),
            torch.randn(rows),
            torch.rand(rows) + 0.5,
        ),
        "allowed": AllowedTokens(
            torch.randint(-(2**31), 2**31, (2, -(-vocabulary // 32))).int(),
            torch.randint(-1, 2, (rows,)),
        ),
    }


def cut_rows(view: Any, part: slice) -> Any:
    """The views of some rows; tables that rows point into stay whole."""
    tables = ("counts", "masks")
    names = [name for name in view.__dataclass_fields__ if name not in tables]
    return replace(view, **{name: getattr(view, name)[part].clone() for name in names})


@pytest.mark.parametrize("room", [1, 16384])
def test_a_row_is_the_same_in_any_company(room: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(five_launches, "ROOM", room)
    logits, own = mixed(5, 2.0)
    draws, changes = draw_settings(own), rules(5, 4097)
    together = ops.next_tokens(logits, draws, limit=4090, **changes)
    for part in (slice(0, 1), slice(4, 5), slice(1, 4)):
        some = {name: cut_rows(view, part) for name, view in changes.items()}
        got = ops.next_tokens(logits[part].clone(), cut_rows(draws, part), limit=4090, **some)
        assert torch.equal(got, together[part])


def test_rules_that_leave_a_row_out_change_nothing():
    logits, own = mixed(6, 2.0)
    draws, changes = draw_settings(own), rules(6, 4097)
    changes["bias"].ids[:] = -1
    changes["penalties"].rows[:] = -1
    changes["allowed"].rows[:] = -1
    plain = ops.next_tokens(logits, draws, limit=4090)
    assert torch.equal(ops.next_tokens(logits, draws, limit=4090, **changes), plain)


def test_drafts_before_a_row_count_as_generated():
    """Two drafts of the best id, each of which costs it 3: at the third row the next one wins."""
    logits = torch.tensor([[4.0, 9.0, 5.0]]).repeat(3, 1)
    earlier = torch.tensor([[-1, -1], [1, -1], [1, 1]])
    rows, zeros = torch.zeros(3, dtype=torch.int64), torch.zeros(3)
    history = TokenPenalties(
        torch.zeros(1, 3, dtype=torch.int32), rows, earlier, zeros, zeros + 3, zeros + 1
    )
    draws = DrawSettings(zeros, rows, zeros + 1, zeros, rows, rows, rows)
    got = ops.next_tokens(logits, draws, limit=3, penalties=history)
    assert got.tolist() == [1, 1, 2]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_that_cannot_be_used_give_no_token(temperature: float):
    logits = torch.randn(6, 2100)
    logits[0, 3], logits[1, 2050], logits[2] = torch.nan, torch.inf, -torch.inf
    logits[3, :2060], logits[4, 2090] = -torch.inf, torch.nan
    own = settings(6, temperature=temperature) | {"u": torch.full((6,), 0.9)}
    got = ops.sample(logits, limit=2070, **own)
    assert got[:3].tolist() == [-1, -1, -1]
    assert torch.equal(
        got[3:], reference(logits[3:], limit=2070, **{n: x[3:] for n, x in own.items()})
    )
    nothing = AllowedTokens(torch.zeros(1, 66, dtype=torch.int32), torch.tensor([0, -1]))
    draws = cut_rows(draw_settings(own), slice(3, 5))
    got = ops.next_tokens(logits[3:5], draws, limit=2070, allowed=nothing)
    assert got[0] == -1 and got[1] >= 0


@pytest.mark.parametrize("purpose", list(ops.Purpose))
def test_numbers_of_the_kernel_are_the_reference_bit_for_bit(purpose: ops.Purpose):
    seeds = [0, 1, 42, -1, 2**63 - 1, -(2**63), 7632647173703958409, *range(100, 120)]
    positions = [0, 1, 2**17, 262_143, 2**40, *range(22)]
    got = ops.uniforms(
        torch.tensor(seeds), torch.tensor(positions), torch.full((27,), int(purpose))
    )
    want = [ops.uniform(s, p, purpose) for s, p in zip(seeds, positions, strict=True)]
    assert got.tolist() == want


@pytest.mark.parametrize("count", [1, 20, 50])
def test_best_of_a_row_with_ties_over_many_blocks(count: int):
    logits = (torch.randn(2, 7000)).round()
    logits[1] = 2.0
    ids, values = ops.top_logprobs(logits, 6990, count)
    want = logits[:, :6990].sort(descending=True, stable=True).indices[:, :count]
    assert torch.equal(ids, want)
    assert torch.equal(values, ops.logprobs(logits, want, 6990))


def test_more_parts_than_one_program_holds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ninfer.ops.sampling.portable._ENTRIES", 16)
    logits = torch.randn(3, 9000).round()
    ids, _ = ops.top_logprobs(logits, 9000, 12)
    assert torch.equal(ids, logits.sort(descending=True, stable=True).indices[:, :12])


def test_unread_columns_do_not_matter():
    """Rows of a wider matrix, NaN behind the limit and between the rows."""
    wide = torch.full((3, 3000), torch.nan)
    wide[:, 100:2500] = torch.randn(3, 2400)
    logits = wide[:, 100:2600]
    own = settings(3, top_p=0.9) | {"u": torch.rand(3)}
    dense = logits[:, :2400].clone()
    assert torch.equal(ops.sample(logits, limit=2400, **own), reference(dense, limit=2400, **own))
    assert torch.equal(ops.argmax(logits, 2400), dense.argmax(-1))
    ids = torch.tensor([[0, 2399]] * 3)
    assert torch.equal(ops.logprobs(logits, ids, 2400), ops.logprobs(dense, ids, 2400))


def test_what_has_no_kernel_is_refused_by_name():
    own = settings(1) | {"u": torch.zeros(1)}
    with pytest.raises(UnsupportedError, match=r"sample: no Triton kernel for .*float64"):
        ops.sample(torch.zeros(1, 4).double(), limit=4, **own)
    with pytest.raises(UnsupportedError, match="sample: no Triton kernel for 262145 ids"):
        ops.sample(torch.zeros(1, 262_145), limit=262_145, **own)
    with pytest.raises(UnsupportedError, match=r"argmax: .*float64"):
        ops.argmax(torch.zeros(1, 4).double(), 4)
    with pytest.raises(UnsupportedError, match=r"edge_scores: .*float64"):
        ids = torch.zeros(1, 2, dtype=torch.int64)
        ops.edge_scores(torch.zeros(1, 2).double(), ids, ids[:, 0], *[torch.zeros(1, 2)] * 3)
    with pytest.raises(UnsupportedError, match=r"tempered_softmax: .*5000 scores"):
        ops.tempered_softmax(torch.zeros(1, 5000), torch.ones(1))


def test_a_row_of_more_blocks_than_copies_of_its_bins():
    torch.manual_seed(5)
    limit = (COPIES.value + 1) * five_launches.BLOCK + 5
    logits = torch.randn(3, limit + 3) * 3
    own = settings(3) | {"u": torch.tensor([0.0, 0.4, 0.99])}
    own["top_p"][1] = 0.9
    got = ops.sample(logits, limit=limit, **own)
    assert torch.equal(got, reference(logits, limit=limit, **own))
