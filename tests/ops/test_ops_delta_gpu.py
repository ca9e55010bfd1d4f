"""The Gated DeltaNet on a card: bits over cuts, windows and company; graphs; long prefills."""

from collections.abc import Iterator
from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from ninfer import ops
from ninfer.ops import dispatch
from ninfer.ops.case import Case, Inputs
from ninfer.ops.compare import compare
from ninfer.ops.delta_net import fast
from ninfer.ops.delta_net.cases import CASES
from ninfer.ops.delta_net.row_plan import RowPlan
from ninfer.ops.gdn.cases import CASES as GDN_CASES
from ninfer.ops.tensors import RaggedRows
from tests.ops.delta_scene import SLOT, Scene, in_pieces, in_windows, part_of, run, with_long

pytestmark = pytest.mark.gpu

# Heads of the 27B and of the 35B.
MODELS = pytest.mark.parametrize("heads", [(16, 48), (16, 32)], ids=["27b", "35b"])
STATES = pytest.mark.parametrize("kept", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


@pytest.fixture(autouse=True, params=["portable", fast.FORM])
def on_this_card(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test by the Triton form and by the CUDA form."""
    major, minor = torch.cuda.get_device_capability()
    dispatch.set_backend("triton", 10 * major + minor)
    with dispatch.using(request.param, only=("delta_net",)):
        yield
    dispatch.set_backend("reference")


WIDE = [c for c in CASES if c.name.endswith(("_27b", "_35b", "group_of_three"))]


@pytest.mark.parametrize("case", WIDE, ids=lambda case: case.name)
def test_the_criterion_is_met(case: Case):
    assert compare(case, torch.bfloat16, torch.device("cuda")) == []


@pytest.mark.parametrize("rows", [4, 8])
def test_how_many_rows_are_worked_on_at_once_changes_no_bit(rows: int):
    """Nor whether the matrix is foreseen; the window is longer than a turn, NaN behind its rows."""
    scene = scene_of((16, 48), torch.float32, window=16)
    x, weights = scene.rows(27), scene.weights()
    results = []
    for plan in (RowPlan(2, 8), RowPlan(2, 8, rows=rows, foresees=False)):
        state = scene.empty()
        for start, stop, kept in ((0, 14, 0), (14, 27, 14)):
            state[1].pending[SLOT] = kept
            part = part_of(x, start, stop)
            out = torch.full_like(part.value, torch.nan)
            ragged = scene.ragged(64 + stop, stop - start, held=True)
            fast.launch_rows(part, weights, *state, ragged, out, 1e-6, 0, plan)
        held = (state[0].window[SLOT, :13], state[1].keys[SLOT, :13], state[1].betas[SLOT, :13])
        results.append((out, state[0].inputs, state[1].matrix, *held))
    assert same(*results)
    assert not any(bool(part.isnan().any()) for part in results[0])


def scene_of(heads: tuple[int, int], kept: torch.dtype, window: int = 0) -> Scene:
    return Scene((*heads, 128, 128), 4, window, torch.bfloat16, kept, "cuda")


def same(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


@MODELS
@STATES
@pytest.mark.parametrize(
    "cuts", [[64, 300], [128, 256, 300], [256, 257, 260, 300], [256, 299, 300]], ids=str
)
def test_a_cut_on_the_grid_changes_no_bit(heads, kept, cuts):
    scene = scene_of(heads, kept)
    x, weights = scene.rows(300), scene.weights()
    assert same(in_pieces(scene, x, weights, cuts), in_pieces(scene, x, weights, [300]))


@MODELS
@STATES
@pytest.mark.parametrize("behind", [1, 63])
def test_rows_before_and_behind_chunks_are_those_of_short_calls(heads, kept, behind):
    scene = scene_of(heads, kept)
    x, weights = scene.rows(200), scene.weights()
    first = 64 - behind
    cuts = [first, first + 64, first + 128, 200]
    want = in_pieces(scene, x, weights, [200], behind)
    assert same(in_pieces(scene, x, weights, cuts, behind), want)


@MODELS
@STATES
@pytest.mark.parametrize("seed", range(5))
def test_windows_change_no_bit(heads, kept, seed):
    scene = scene_of(heads, kept, window=16)
    x, weights = scene.rows(60), scene.weights()
    want = in_pieces(scene, x, weights, list(range(1, 61)), behind=64)
    assert same(in_windows(scene, x, weights, 59, 64, seed), want)


def crowd(scene: Scene, counts: list[int]) -> RaggedRows:
    """Rows of many sequences, sequence b in state slot b + 1, all from position 0 on."""
    bounds = torch.tensor([0, *counts], device="cuda").cumsum(0)
    slots = torch.arange(1, len(counts) + 1, device="cuda")
    table = torch.zeros(len(counts), 1, dtype=torch.int64, device="cuda")
    return RaggedRows(bounds, torch.tensor(counts, device="cuda"), table, slots)


@MODELS
def test_a_sequence_has_the_same_bits_in_any_company(heads):
    """Among sequences of one row, of many, and of whole chunks; with and without their bound."""
    scene = scene_of(heads, torch.float32)
    counts = [1, 4, 130, 63, 16, 1, 64, 200, 7]
    x, weights = scene.rows(sum(counts)), scene.weights()
    state = scene.empty(len(counts) + 1)
    out = run(x, weights, state, crowd(scene, counts))
    start = 0
    for b, count in enumerate(counts):
        part = part_of(x, start, start + count)
        alone = scene.empty()
        rows = with_long(scene.ragged(count, count), count if b % 2 else None)
        got = run(part, weights, alone, replace(rows, held=None))
        assert torch.equal(got, out[start : start + count]), count
        assert torch.equal(alone[1].matrix[SLOT], state[1].matrix[b + 1]), count
        assert torch.equal(alone[0].inputs[SLOT], state[0].inputs[b + 1]), count
        start += count


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("count", [1, 4, 16, 130])
def test_captured_and_replayed(count: int, held: bool):
    """Lengths, slots and flags are read by the device: the replay follows what they hold then."""
    scene = scene_of((16, 48), torch.float32, window=16)
    if held and count > scene.window:
        return
    x, weights, state = scene.rows(count), scene.weights(), scene.empty()
    rows = scene.ragged(64 + count, count, held=held)
    run(x, weights, state, rows)  # compiled before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run(x, weights, state, rows)
    for turn in range(3):
        fresh, want_state = scene.rows(count), scene.empty()
        for field in fields(x):
            getattr(x, field.name).copy_(getattr(fresh, field.name))
        for own, zero in zip(state, want_state, strict=True):
            for field in fields(own):
                getattr(own, field.name).copy_(getattr(zero, field.name))
        shorter = max(count - turn, 1)
        rows.offsets.copy_(torch.tensor([0, shorter]))
        rows.kv_lengths.copy_(torch.tensor([64 + shorter]))
        out.fill_(torch.nan)
        graph.replay()
        eager = replace(rows, offsets=rows.offsets.clone(), kv_lengths=rows.kv_lengths.clone())
        want = run(part_of(x, 0, shorter), weights, want_state, eager)
        assert torch.equal(out[:shorter], want)
        for own, wanted in zip(state, want_state, strict=True):
            for field in fields(own):
                got = getattr(own, field.name).nan_to_num()
                assert torch.equal(got, getattr(wanted, field.name).nan_to_num()), field.name


@STATES
def test_a_long_prefill_follows_float64(kept: torch.dtype):
    """Of the rule alone, whose inputs are not rounded on the way; gentle and steep decays."""
    (case,) = [c for c in GDN_CASES if c.name == "real_chunk"]
    inputs = Inputs(torch.bfloat16, torch.device("cuda"), 3)
    call = case.build(inputs).arguments
    count, heads = 2048, (2, 4)
    q, k = (
        torch.nn.functional.normalize(
            inputs.normal(count, heads[0], 128).float(), dim=-1
        ).bfloat16()
        for _ in range(2)
    )
    v = inputs.normal(count, heads[1], 128)
    g = -(inputs.uniform(count, heads[1], dtype=torch.float32) ** 4)
    beta = inputs.uniform(count, heads[1], dtype=torch.float32)
    state = replace(call["state"], matrix=torch.zeros_like(call["state"].matrix).to(kept))
    rows = inputs.ragged([count])
    wide = replace(
        state,
        **{
            f.name: getattr(state, f.name).double()
            for f in fields(state)
            if getattr(state, f.name).is_floating_point()
        },
    )
    out = ops.gated_delta_rule(q, k, v, g, beta, state, rows)
    with dispatch.using("reference"):
        exact = (x.double() for x in (q, k, v, g, beta))
        want = ops.gated_delta_rule(*exact, wide, rows)
    slot = int(rows.state_slots[0])
    bound = 1e-5 if kept is torch.float32 else 2.0**-7
    assert float((out.double() - want).norm() / want.norm()) < 2.0**-8 + bound
    error = (state.matrix[slot].double() - wide.matrix[slot]).norm() / wide.matrix[slot].norm()
    assert float(error) < bound
