"""A row's bits depend on that row alone: any count, any neighbours, any cut on the chunk grid."""

from collections.abc import Callable
from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from ninfer import ops
from ninfer.formats import kv, quantise
from ninfer.ops import exact
from ninfer.ops.conv.cases import CASES as CONV_CASES
from ninfer.ops.gdn import reference as gdn_reference
from ninfer.ops.gdn.cases import CASES as GDN_CASES
from ninfer.ops.tensors import (
    ConvState,
    DeltaState,
    ExpertWeights,
    PagedKV,
    RaggedRows,
    SharedExpert,
)

COUNTS = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33, 64)
ROWS = 130


def assert_rows_alone(op: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Every slice of the inputs gives that slice of the whole result, bit for bit."""
    whole = op(*inputs)
    for count in COUNTS:
        for start in (0, 1, 29, ROWS - count):
            part = slice(start, start + count)
            got = op(*(value[part].clone() for value in inputs))
            assert torch.equal(got, whole[part]), (count, start)


def noise(*shape: int) -> Tensor:
    return torch.randn(shape)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("columns", [64, 100, 384])
@pytest.mark.parametrize("rows", [1, 2, 3, 6, 48, 257, 1000])
def test_linear(rows: int, columns: int, dtype: torch.dtype) -> None:
    weight = noise(rows, columns)
    assert_rows_alone(lambda x: ops.linear(x, weight), noise(ROWS, columns).to(dtype))


@pytest.mark.parametrize("name", ["Q4G64_F16S", "Q6G64_F16S", "W8G32_F16S", "NVFP4"])
def test_linear_over_packed_weights(name: str) -> None:
    weight = quantise(noise(256, 192), name)
    assert_rows_alone(lambda x: ops.linear(x, weight), noise(ROWS, 192))
    assert_rows_alone(lambda x: ops.linear_swiglu(x, weight), noise(ROWS, 192))
    residual = noise(ROWS, 256)
    assert_rows_alone(lambda x, y: ops.linear_add(x, weight, y), noise(ROWS, 192), residual)


@pytest.mark.parametrize("width", [1, 6, 48, 100, 128, 1000])
def test_elementwise_and_norms(width: int) -> None:
    weight = noise(width)
    x, y = noise(ROWS, width), noise(ROWS, width)
    assert_rows_alone(ops.silu_mul, x, y)
    assert_rows_alone(ops.sigmoid_mul, x, y)
    assert_rows_alone(lambda a: ops.l2norm(a, eps=1e-6), x)
    assert_rows_alone(lambda a: ops.rmsnorm(a, weight, eps=1e-6, unit_offset=True), x)
    assert_rows_alone(lambda a, b: ops.gated_rmsnorm(a, b, weight, eps=1e-6), x, y)
    for part in (0, 1):
        assert_rows_alone(
            lambda a, b, part=part: ops.add_rmsnorm(a, b, weight, eps=1e-6, unit_offset=True)[part],
            x,
            y,
        )


@pytest.mark.parametrize("heads", [1, 3, 6, 48])
def test_gating(heads: int) -> None:
    a_log, dt_bias = noise(heads), noise(heads)
    for part in (0, 1):
        assert_rows_alone(
            lambda a, b, part=part: ops.gdn_gating(a, b, a_log, dt_bias)[part],
            noise(ROWS, heads),
            noise(ROWS, heads),
        )


def test_rotation() -> None:
    positions = torch.arange(ROWS).expand(3, -1)

    def rotate(x: Tensor, axes: Tensor) -> Tensor:
        return ops.mrope(x, axes.t().contiguous(), theta=1e7, rotary_dim=24)

    assert_rows_alone(rotate, noise(ROWS, 3, 40), positions.t().clone())


@pytest.mark.parametrize("experts", [5, 32])
def test_mixture_of_experts(experts: int) -> None:
    inner, dim = 48, 96
    routed = ExpertWeights(noise(experts * 2 * inner, dim), noise(experts * dim, inner), experts)
    shared = SharedExpert(noise(2 * inner, dim), noise(dim, inner))

    def moe(x: Tensor, scores: Tensor) -> Tensor:
        weights, ids = ops.route_topk(scores[:, :experts].contiguous(), 3)
        return ops.sparse_moe(x, weights, ids, routed, shared, scores[:, experts:])

    assert_rows_alone(moe, noise(ROWS, dim), noise(ROWS, experts + 1))


def cache_of(form: str, heads: int, dim: int, length: int) -> PagedKV:
    pages = -(-length // 64)
    groups = (pages, 64, heads, kv.kv_format(form).scale_groups(dim))
    dtype = kv.word_dtype(form)
    scales = [torch.zeros(groups, dtype=torch.float16) if groups[3] else None for _ in "kv"]
    size = kv.kv_format(form).words(dim)
    words = [torch.zeros((pages, 64, heads, size), dtype=dtype) for _ in "kv"]
    cache = PagedKV(form, *words, *scales)
    ops.write_kv(noise(length, heads, dim), noise(length, heads, dim), cache, torch.arange(length))
    return cache


@pytest.mark.parametrize("form", ["fp32", "bf16", "int8", "fp8", "int4"])
@pytest.mark.parametrize(("query_heads", "kv_heads"), [(1, 1), (4, 2), (6, 1), (8, 1), (4, 4)])
def test_attention(query_heads: int, kv_heads: int, form: str) -> None:
    """Also across the border of a split, and for a cache that goes on behind the row."""
    length, dim = 600, 64
    cache = cache_of(form, kv_heads, dim, length)
    q = noise(length, query_heads, dim)

    def attend(start: int, stop: int) -> Tensor:
        table = torch.arange(-(-stop // 64)).unsqueeze(0)
        rows = RaggedRows(
            torch.tensor([0, stop - start]), torch.tensor([stop]), table, torch.tensor([0])
        )
        return ops.paged_attention(q[start:stop].clone(), cache, rows, scale=0.125)

    whole = attend(0, length)
    for start in (0, 1, 254, 255, 256, 257, 511, 512, 513, 590):
        for count in (1, 2, 3, 5, 8, 64):
            stop = min(start + count, length)
            assert torch.equal(attend(start, stop), whole[start:stop]), (start, stop)


def rows_of(stop: int, count: int, *, held: bool = False) -> RaggedRows:
    """The `count` rows before position `stop` of one sequence in state slot 1."""
    return RaggedRows(
        torch.tensor([0, count]),
        torch.tensor([stop]),
        torch.zeros(1, 1, dtype=torch.int64),
        torch.tensor([1]),
        torch.tensor([held]),
    )


def empty_delta(
    heads: tuple[int, int], window: int = 0, kept: torch.dtype = torch.float32
) -> DeltaState:
    return DeltaState(
        torch.zeros(2, heads[1], 32, 32, dtype=kept),
        torch.zeros(2, window, heads[0], 32),
        torch.zeros(2, window, heads[1], 32),
        torch.zeros(2, window, heads[1]),
        torch.zeros(2, window, heads[1]),
        torch.zeros(2, dtype=torch.int64),
    )


def empty_conv(channels: int, window: int = 0) -> ConvState:
    pending = torch.zeros(2, dtype=torch.int64)
    return ConvState(torch.zeros(2, 3, channels), torch.zeros(2, window, channels), pending)


def delta_inputs(count: int, heads: tuple[int, int]) -> list[Tensor]:
    q, k = (ops.l2norm(noise(count, heads[0], 32), eps=1e-6) for _ in "qk")
    g, beta = -noise(count, heads[1]).abs(), noise(count, heads[1]).sigmoid()
    return [q, k, noise(count, heads[1], 32), g, beta]


def delta_rule(
    cuts: list[int],
    inputs: list[Tensor],
    heads: tuple[int, int],
    kept: torch.dtype = torch.float32,
) -> list[Tensor]:
    state = empty_delta(heads, kept=kept)
    outputs, start = [], 0
    for stop in cuts:
        part = [value[start:stop].clone() for value in inputs]
        outputs.append(ops.gated_delta_rule(*part, state, rows_of(stop, stop - start)))
        start = stop
    return [torch.cat(outputs), state.matrix[1]]


STATES = pytest.mark.parametrize("kept", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


@STATES
@pytest.mark.parametrize("heads", [(1, 1), (1, 3), (2, 4)])
def test_delta_rule_cut_on_the_grid(heads: tuple[int, int], kept: torch.dtype) -> None:
    count = 300
    inputs = delta_inputs(count, heads)
    whole = delta_rule([count], inputs, heads, kept)
    for cuts in (
        [128, 300],
        [64, 192, 256, 300],
        [256, 300],
        [256, 257, 260, 300],
        [128, 256, 300],
    ):
        for got, want in zip(delta_rule(cuts, inputs, heads, kept), whole, strict=True):
            assert torch.equal(got, want), cuts


@STATES
@pytest.mark.parametrize("cuts", [[1], [3, 4], [10, 50, 70], [63, 64]])
def test_delta_rule_row_by_row_after_the_grid(cuts: list[int], kept: torch.dtype) -> None:
    """Rows behind the last whole chunk go one by one, however many come in a call."""
    tail = 40
    inputs = delta_inputs(64 + tail, (1, 2))
    whole = delta_rule([64, 64 + tail], inputs, (1, 2), kept)
    ends = [64, *(64 + cut for cut in cuts if cut < tail), 64 + tail]
    for got, want in zip(delta_rule(ends, inputs, (1, 2), kept), whole, strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("channels", [6, 100, 640])
def test_convolution(channels: int) -> None:
    x, weight = noise(ROWS, channels), noise(4, channels)
    outputs = {}
    for cuts in ([ROWS], [1, 2, 3, ROWS], [64, ROWS], list(range(1, ROWS + 1))):
        state, start, parts = empty_conv(channels), 0, []
        for stop in cuts:
            rows = rows_of(stop, stop - start)
            parts.append(ops.causal_conv_silu(x[start:stop].clone(), weight, state, rows))
            start = stop
        outputs[tuple(cuts)] = torch.cat(parts)
    first, *others = outputs.values()
    assert all(torch.equal(first, other) for other in others)


def in_windows(
    op: Callable[..., Tensor], inputs: list[Tensor], state: ConvState | DeltaState, seed: int
) -> Tensor:
    """Outputs of all rows, in windows of random lengths of which a random part is accepted.

    Rejected rows are noise; accepted ones are the rows of `inputs`, so they count once.
    """
    generator = torch.Generator().manual_seed(seed)
    count, start, outputs = inputs[0].shape[0], 0, []
    while start < count:
        length = int(torch.randint(1, WINDOW + 1, (1,), generator=generator))
        accepted = min(int(torch.randint(0, length + 1, (1,), generator=generator)), count - start)
        held = accepted < length or bool(torch.randint(0, 2, (1,), generator=generator))
        part = [value[start : start + accepted] for value in inputs]
        part = [torch.cat((x, torch.randn(length - accepted, *x.shape[1:]))) for x in part]
        rows = rows_of(BEHIND + start + length, length, held=held)
        outputs.append(op(*part, state, rows)[:accepted])
        state.pending[1] = accepted if held else 0
        start += accepted
    return torch.cat(outputs)


# The longest window, and where the run begins: behind a grid point, so that all goes row by row.
WINDOW, BEHIND = 6, 64


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("heads", [(1, 1), (2, 6)])
@STATES
def test_delta_rule_in_windows(heads: tuple[int, int], seed: int, kept: torch.dtype) -> None:
    """Whatever is held, accepted or rejected: the bits of committing row by row."""
    inputs = delta_inputs(40, heads)
    inputs[3][7] = -60.0
    plain, windowed = (empty_delta(heads, rows, kept) for rows in (0, WINDOW))
    one_by_one = [
        ops.gated_delta_rule(*(x[t : t + 1] for x in inputs), plain, rows_of(BEHIND + t + 1, 1))
        for t in range(40)
    ]
    got = in_windows(ops.gated_delta_rule, inputs, windowed, seed)
    assert torch.equal(got, torch.cat(one_by_one))
    settle = [x[:1] for x in delta_inputs(1, heads)]
    for state in (plain, windowed):
        ops.gated_delta_rule(*settle, state, rows_of(BEHIND + 41, 1))
    assert torch.equal(windowed.matrix, plain.matrix)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("channels", [6, 100])
def test_convolution_in_windows(channels: int, seed: int) -> None:
    x, weight = noise(40, channels), noise(4, channels)
    plain, windowed = empty_conv(channels), empty_conv(channels, WINDOW)

    def convolve(rows_in: Tensor, state: ConvState, rows: RaggedRows) -> Tensor:
        return ops.causal_conv_silu(rows_in, weight, state, rows)

    one_by_one = [convolve(x[t : t + 1], plain, rows_of(BEHIND + t + 1, 1)) for t in range(40)]
    assert torch.equal(in_windows(convolve, [x], windowed, seed), torch.cat(one_by_one))
    settle = noise(1, channels)
    for state in (plain, windowed):
        convolve(settle, state, rows_of(BEHIND + 41, 1))
    assert torch.equal(windowed.inputs, plain.inputs)


MIXED = {"causal_conv_silu": CONV_CASES, "gated_delta_rule": GDN_CASES}


@STATES
@pytest.mark.parametrize("side_by_side", [1, 2, 100])
@pytest.mark.parametrize("op", MIXED)
def test_recurrent_sequences_in_company(
    op: str, side_by_side: int, kept: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held, pending and prefilled sequences in one call: outputs and states as alone."""
    case = next(case for case in MIXED[op] if case.id == f"{op}-held_and_not")
    bytes_of_one = 6 * 16 * 32 * 4
    monkeypatch.setattr(gdn_reference, "_GROUP_BYTES", side_by_side * bytes_of_one)
    together, alone = (case.make(torch.float32).arguments for _ in range(2))
    if op == "gated_delta_rule":
        for call in (together, alone):
            call["state"] = replace(call["state"], matrix=call["state"].matrix.to(kept))
    out = case.op(**together)
    rows = alone["rows"]
    for b, (start, stop) in enumerate(rows.spans()):
        part = {
            name: value[start:stop] if name in "qkvgx" or name == "beta" else value
            for name, value in alone.items()
        }
        one = slice(b, b + 1)
        part["rows"] = RaggedRows(
            torch.tensor([0, stop - start]),
            rows.kv_lengths[one],
            rows.page_table[one],
            rows.state_slots[one],
            rows.held[one],
        )
        assert torch.equal(case.op(**part), out[start:stop])
    for field in fields(together["state"]):
        got, want = (getattr(call["state"], field.name) for call in (together, alone))
        assert torch.equal(got, want), field.name


def test_row_by_row_where_the_library_keeps_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a processor where no row count is safe, products are slow and still exact."""
    x, weight = noise(ROWS, 96), noise(40, 96)
    want = ops.linear(x, weight)
    monkeypatch.setattr(exact, "least_rows", lambda: 0)
    assert_rows_alone(lambda rows: ops.linear(rows, weight), x)
    torch.testing.assert_close(ops.linear(x, weight), want)


@pytest.mark.parametrize("threads", [2, 3, 5, 7])
def test_pointwise_functions_shared_by_threads(threads: int) -> None:
    """The borders between the threads' shares lie elsewhere for each number of rows."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for width in (1000, 1024):
            x, y = noise(ROWS, width), noise(ROWS, width)
            assert_rows_alone(ops.silu_mul, x, y)
            assert_rows_alone(ops.sigmoid_mul, x, y)
    finally:
        torch.set_num_threads(before)


def test_the_trial_sees_an_order_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library whose sums depend on the row count is found out up to where it stops."""
    mm = torch.mm

    def fickle(x: Tensor, y: Tensor) -> Tensor:
        return mm(x, y) + (1e-3 if x.shape[0] < 16 else 0.0)

    monkeypatch.setattr(torch, "mm", fickle)
    assert exact.least_rows.__wrapped__() == 16
    monkeypatch.setattr(torch, "mm", lambda x, y: mm(x, y) + 1e-3 * x.shape[0])
    assert exact.least_rows.__wrapped__() == 0


@pytest.mark.parametrize("width", [5, 100, 504, 3000])
def test_logprobs(width: int) -> None:
    ids = torch.randint(0, width, (ROWS, 3))
    assert_rows_alone(lambda x, i: ops.logprobs(x, i, width), noise(ROWS, width), ids)
    assert_rows_alone(lambda x: ops.top_logprobs(x, width, 5)[1], noise(ROWS, width))
