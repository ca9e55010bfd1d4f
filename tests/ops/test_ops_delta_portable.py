"""Triton forms of the Gated DeltaNet, interpreted: cuts, windows, company, refusals."""

from collections.abc import Iterator
from dataclasses import fields, replace

import pytest
import torch
import triton.language as tl
from torch import Tensor

from ninfer import ops
from ninfer.errors import UnsupportedError
from ninfer.ops import dispatch
from ninfer.ops.case import Case
from ninfer.ops.cases import ALL_CASES
from ninfer.ops.compare import compare
from ninfer.ops.conv.cases import CASES as CONV_CASES
from ninfer.ops.delta_net.cases import CASES
from ninfer.ops.gdn import portable as gdn_portable
from ninfer.ops.gdn.cases import CASES as GDN_CASES
from ninfer.ops.tensors import DeltaRows, RaggedRows
from tests.ops.delta_scene import (
    SLOT,
    Scene,
    committed,
    in_pieces,
    in_windows,
    part_of,
    run,
    with_long,
)

# Triton 3.6's interpreter makes scalars of arrays for every range with a run-time bound.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

FAMILY = ("causal_conv_silu", "gdn_gating", "gated_delta_rule", "delta_net")


@pytest.fixture(autouse=True)
def portable() -> Iterator[None]:
    with dispatch.using("portable", only=FAMILY):
        yield


def same(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


@pytest.mark.parametrize(
    "name",
    [
        "causal_conv_silu-held_and_not",
        "gdn_gating-small",
        "gated_delta_rule-decode_bf16_state",
        "gated_delta_rule-chunk_plus_1",
        "delta_net-held",
        "delta_net-chunk",
    ],
)
def test_bf16_is_rounded_where_the_contract_says(name: str):
    (case,) = [case for case in ALL_CASES if case.id == name]
    assert compare(case, torch.bfloat16) == []


@pytest.mark.parametrize(
    ("cuts", "kept"), [([64, 128, 129, 130], torch.float32), ([128, 130], torch.bfloat16)], ids=str
)
def test_a_cut_on_the_grid_changes_no_bit(cuts: list[int], kept: torch.dtype):
    scene = Scene(kept=kept)
    x, weights = scene.rows(130), scene.weights()
    assert same(in_pieces(scene, x, weights, cuts), in_pieces(scene, x, weights, [130]))


def test_rows_before_and_behind_a_chunk_are_those_of_short_calls():
    """From position 62: two rows, a whole chunk, three rows."""
    scene = Scene(sizes=(1, 3, 16, 16))
    x, weights = scene.rows(69), scene.weights()
    whole = in_pieces(scene, x, weights, [69], behind=62)
    assert same(in_pieces(scene, x, weights, [1, 2, 66, 67, 69], behind=62), whole)


@pytest.mark.parametrize(
    ("seed", "kept", "taps"),
    [(0, torch.float32, 4), (1, torch.bfloat16, 4), (2, torch.float32, 3)],
    ids=str,
)
def test_windows_change_no_bit(seed: int, kept: torch.dtype, taps: int):
    scene = Scene(window=4, kept=kept, taps=taps)
    x, weights = scene.rows(9), scene.weights()
    want = in_pieces(scene, x, weights, list(range(1, 10)), behind=64)
    assert same(in_windows(scene, x, weights, 8, 64, seed), want)


def test_a_prompt_behind_pending_rows_keeps_to_the_grid():
    """Two accepted rows at 62 and 63, then a whole chunk and a row: as if they were committed."""
    scene = Scene(window=2)
    x, weights = scene.rows(67), scene.weights()
    want = in_pieces(scene, x, weights, [2, 67], behind=62)
    state = scene.empty()
    head = run(part_of(x, 0, 2), weights, state, scene.ragged(64, 2, held=True))
    state[1].pending[SLOT] = 2
    tail = run(part_of(x, 2, 67), weights, state, scene.ragged(129, 65))
    assert same((torch.cat((head, tail)), *committed(state)), want)


@pytest.mark.parametrize(
    "case",
    [c for c in (*CONV_CASES, *GDN_CASES, *CASES) if c.name == "held_and_not"],
    ids=lambda case: case.id,
)
def test_sequences_in_company_have_the_bits_they_have_alone(case: Case):
    together, alone = (case.make(torch.float32).arguments for _ in range(2))
    out = case.op(**together)
    for b, (start, stop) in enumerate(alone["rows"].spans()):
        one = {name: rows_of(x, alone["rows"], b, start, stop) for name, x in alone.items()}
        assert torch.equal(case.op(**one), out[start:stop])
    for name in case.make(torch.float32).changed:
        for field in fields(together[name]):
            got, want = (getattr(call[name], field.name) for call in (together, alone))
            assert torch.equal(got, want), field.name


def rows_of(value: object, rows: RaggedRows, b: int, start: int, stop: int) -> object:
    """The part of an argument that belongs to sequence b; states and weights are everyone's."""
    if isinstance(value, DeltaRows):
        return part_of(value, start, stop)
    if isinstance(value, Tensor) and value.shape[0] == int(rows.offsets[-1]):
        return value[start:stop]
    if not isinstance(value, RaggedRows):
        return value
    one = slice(b, b + 1)
    return RaggedRows(
        torch.tensor([0, stop - start]),
        rows.kv_lengths[one],
        rows.page_table[one],
        rows.state_slots[one],
        rows.held[one],
    )


def test_what_the_host_knows_of_lengths_changes_no_bit():
    scene = Scene()
    x, weights = scene.rows(66), scene.weights()
    offsets = torch.tensor([0, 33, 66])
    rows = replace(
        scene.ragged(33, 66),
        offsets=offsets,
        kv_lengths=torch.tensor([33, 40]),
        page_table=torch.zeros(2, 1, dtype=torch.int64),
        state_slots=torch.tensor([SLOT, 0]),
        held=None,
    )
    results = []
    for longest in (None, 33):
        state = scene.empty()
        out = run(x, weights, state, with_long(rows, longest))
        results.append((out, state[0].inputs, state[1].matrix))
    assert same(*results)


def test_counters_are_made_where_the_owner_has_none():
    scene = Scene(sizes=(2, 6, 16, 8), window=2)
    x, weights = scene.rows(2), scene.weights()
    results = []
    for own in (True, False):
        conv, delta = scene.empty()
        state = (conv, delta if own else replace(delta, arrivals=None))
        out = run(x, weights, state, scene.ragged(66, 2, held=True))
        results.append((out, conv.window[SLOT], delta.keys[SLOT]))
    assert same(*results)
    assert not bool(results[0][1].isnan().any())


def test_rows_behind_the_end_of_a_window_are_dropped():
    scene = Scene(window=2)
    x, weights = scene.rows(3), scene.weights()
    state = scene.empty(slots=3)
    run(x, weights, state, scene.ragged(67, 3, held=True))
    wide = replace(scene, window=3)
    want = wide.empty(slots=3)
    run(x, weights, want, scene.ragged(67, 3, held=True))
    for got, full in zip(state, want, strict=True):
        for field in fields(got):
            part, whole = getattr(got, field.name), getattr(full, field.name)
            if part.shape != whole.shape:
                assert torch.equal(part[SLOT], whole[SLOT, :2])
                assert part[[0, 2]].isnan().all()


def test_products_in_parts_have_the_precision_of_float32(monkeypatch: pytest.MonkeyPatch):
    """float16 parts, which the interpreter can multiply, in place of bfloat16 ones."""
    monkeypatch.setattr(gdn_portable, "operand", lambda dtype: tl.float16)
    (case,) = [c for c in GDN_CASES if c.name == "chunk"]
    with dispatch.using("reference"):
        call = case.make(torch.float16)
    q, k, v, g, beta, state, rows = call.arguments.values()
    wide = replace(
        state, **{f.name: getattr(state, f.name).double() for f in fields(state) if f.name in WIDE}
    )
    got = ops.gated_delta_rule(q, k, v, g, beta, state, rows)
    with dispatch.using("reference"):
        exact = (x.double() for x in (q, k, v, g, beta))
        want = ops.gated_delta_rule(*exact, wide, rows)
    slot = int(rows.state_slots[0])
    assert float((state.matrix[slot] - wide.matrix[slot]).norm() / wide.matrix[slot].norm()) < 1e-6
    assert float((got - want).norm() / want.norm()) < 2.0**-11


WIDE = ("matrix", "keys", "values", "decays", "betas")


def test_what_has_no_kernel_is_refused_by_name():
    scene = Scene(dtype=torch.float64, kept=torch.float64)
    conv, delta = scene.empty()
    gates = (delta.decays.double(), delta.betas.double())
    delta = replace(delta, decays=gates[0], betas=gates[1])
    with pytest.raises(UnsupportedError, match=r"no Triton kernel for .*float64; use bf16"):
        run(scene.rows(1), scene.weights(), (conv, delta), scene.ragged(1, 1))
    scene = Scene(taps=5)
    with pytest.raises(UnsupportedError, match="delta_net: no Triton kernel for 5 taps; at most 4"):
        run(scene.rows(1), scene.weights(), scene.empty(), scene.ragged(1, 1))
    scene = Scene(sizes=(1, 1, 256, 16))
    with pytest.raises(UnsupportedError, match="heads of 256 keys and 16 values; at most 128"):
        run(scene.rows(1), scene.weights(), scene.empty(), scene.ragged(1, 1))


def test_rows_behind_the_last_sequence_touch_nothing():
    """A captured call can have more rows than its offsets tell of; what lies behind is not read."""
    scene = Scene()
    x, weights = scene.rows(130), scene.weights()
    results = []
    for count in (130, 128):
        state = scene.empty()
        rows = scene.ragged(64 + 128, 128)
        far = 1 << 40
        guarded = replace(
            rows,
            **{
                name: torch.tensor([*getattr(rows, name).tolist(), far])[:-1]
                for name in ("offsets", "kv_lengths", "state_slots")
            },
        )
        out = run(part_of(x, 0, count), weights, state, guarded)
        results.append((out[:128], *committed(state)))
    assert same(*results)
