"""Vision ops against formulas in Python floats, and row replacement."""

import cmath
import math

import pytest
import torch

from ninfer.ops import (
    grid_positions,
    layer_norm,
    linear_bias,
    rope_2d,
    scatter_rows,
    slice_attention,
)


def test_layer_norm_formula():
    x, weight, bias = (torch.randn(*s, dtype=torch.float64) for s in ((3, 7), (7,), (7,)))
    got = layer_norm(x, weight, bias, eps=0.01)
    for row, out in zip(x.tolist(), got.tolist(), strict=True):
        mean = sum(row) / 7
        root = math.sqrt(sum((v - mean) ** 2 for v in row) / 7 + 0.01)
        want = [
            (v - mean) / root * w + b
            for v, w, b in zip(row, weight.tolist(), bias.tolist(), strict=True)
        ]
        assert out == pytest.approx(want, rel=1e-12, abs=1e-13)


def gelu(u: float, activation: str) -> float:
    if activation == "none":
        return u
    if activation == "gelu_erf":
        return u / 2 * (1 + math.erf(u / math.sqrt(2)))
    return u / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))


@pytest.mark.parametrize("activation", ["none", "gelu_erf", "gelu_tanh"])
def test_linear_bias_formula(activation: str):
    x, weight, bias = (torch.randn(*s, dtype=torch.float64) for s in ((3, 5), (4, 5), (4,)))
    want = [
        [gelu(float(row @ weight[n]) + float(bias[n]), activation) for n in range(4)] for row in x
    ]
    got = linear_bias(x, weight, bias, activation=activation)
    assert torch.allclose(got, torch.tensor(want, dtype=torch.float64), rtol=1e-12, atol=1e-14)


def test_bias_and_activation_come_before_the_one_rounding():
    x, weight, bias = (torch.randn(*s).bfloat16() for s in ((64, 32), (48, 32), (48,)))
    exact = x.double() @ weight.double().T + bias.double()
    want = torch.nn.functional.gelu(exact).bfloat16()
    got = linear_bias(x, weight, bias, activation="gelu_erf")
    # Left of zero the result nearly cancels, and float32 has few digits to round.
    right = exact > 0
    assert (got != want)[right].float().mean() < 1e-3


def block_order(height: int, width: int, merge: int) -> list[tuple[int, int]]:
    """Row and column of each patch: blocks row by row, inside a block row by row."""
    return [
        (top + y, left + x)
        for top in range(0, height, merge)
        for left in range(0, width, merge)
        for y in range(merge)
        for x in range(merge)
    ]


@pytest.mark.parametrize("grid", [(1, 4, 6), (2, 2, 2), (1, 14, 4)])
def test_grid_positions_formula(grid: tuple[int, int, int]):
    side, (time, height, width) = 5, grid
    table = torch.randn(side * side, 3, dtype=torch.float64)
    rows = []
    for y, x in block_order(height, width, 2):
        v, u = y * (side - 1) / (height - 1), x * (side - 1) / (width - 1)
        want = torch.zeros(3, dtype=torch.float64)
        for j in range(side):
            for i in range(side):
                weight = max(0.0, 1 - abs(v - j)) * max(0.0, 1 - abs(u - i))
                want += weight * table[j * side + i]
        rows.append(want)
    got = grid_positions(table, grid, merge=2, dtype=torch.float64)
    assert torch.allclose(got, torch.stack(rows * time), rtol=0, atol=1e-12)


def test_a_grid_of_the_table_size_is_the_table():
    table = torch.randn(16, 4)
    got = grid_positions(table, (1, 4, 4), merge=2, dtype=torch.float32)
    order = [y * 4 + x for y, x in block_order(4, 4, 2)]
    assert torch.equal(got, table[order])


def test_rope_2d_formula():
    x, positions = torch.randn(4, 2, 24, dtype=torch.float64), torch.randint(0, 99, (2, 4))
    want = x.clone()
    for p in range(4):
        for i in range(12):
            position = int(positions[0 if i < 6 else 1, p])
            turn = cmath.exp(1j * position * 1e4 ** (-2 * (i % 6) / 12))
            for h in range(2):
                z = complex(x[p, h, i], x[p, h, i + 12]) * turn
                want[p, h, i], want[p, h, i + 12] = z.real, z.imag
    assert (rope_2d(x, positions, theta=1e4) - want).abs().max() < 1e-12


def test_slice_attention_formula():
    q, k, v = (torch.randn(6, 2, 4, dtype=torch.float64) for _ in range(3))
    got = slice_attention(q, k, v, length=3, scale=0.7)
    for row in range(6):
        others = range(row // 3 * 3, row // 3 * 3 + 3)
        for head in range(2):
            scores = [math.exp(0.7 * float(q[row, head] @ k[o, head])) for o in others]
            want = sum(s * v[o, head] for s, o in zip(scores, others, strict=True)) / sum(scores)
            assert (got[row, head] - want).abs().max() < 1e-12


def test_blocks_of_queries_change_nothing(monkeypatch: pytest.MonkeyPatch):
    q, k, v = (torch.randn(30, 2, 8) for _ in range(3))
    whole = slice_attention(q, k, v, length=30, scale=0.3)
    monkeypatch.setattr("ninfer.ops.vision.reference._SCORES", 7 * 60)
    assert (slice_attention(q, k, v, length=30, scale=0.3) - whole).abs().max() < 1e-6


def test_scatter_rows_replaces_these_rows_only():
    x, rows = torch.randn(5, 3), torch.randn(2, 3)
    got = scatter_rows(x, torch.tensor([4, 1]), rows)
    assert torch.equal(got, torch.stack([x[0], rows[1], x[2], x[3], rows[0]]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: linear_bias(x, x, x[0, :1]), "bias"),
        (lambda x: linear_bias(x, x, x[:, 0], activation="relu"), "activation is relu"),
        (lambda x: layer_norm(x, x[0], x[0, :2], eps=1e-6), "bias"),
        (lambda x: grid_positions(x, (1, 2, 2), merge=2, dtype=x.dtype), "of 6 rows"),
        (lambda x: grid_positions(x[:4], (1, 3, 2), merge=2, dtype=x.dtype), "grid is"),
        (lambda x: rope_2d(x[:, None], torch.zeros(2, 6).long(), theta=1e4), "6 head dims"),
        (lambda x: slice_attention(*[x[:, None]] * 3, length=4, scale=1.0), "6 rows"),
        (lambda x: scatter_rows(x, torch.zeros(1).long(), x[:2]), "indices"),
        (lambda x: scatter_rows(x, torch.zeros(2).long(), x[:2].double()), "rows is"),
    ],
)
def test_wrong_calls_are_named(call, message: str):
    with pytest.raises(ValueError, match=message):
        call(torch.randn(6, 6))
