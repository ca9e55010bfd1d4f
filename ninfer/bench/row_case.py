"""Norms, rotation and gates to be measured, at the widths of the models, and their check."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from ninfer.bench.replay import copies_for
from ninfer.errors import FormatError
from ninfer.ops.elementwise import portable as elementwise
from ninfer.ops.elementwise import reference as exact_elementwise
from ninfer.ops.norm import portable as norm
from ninfer.ops.norm import reference as exact_norm
from ninfer.ops.rope import portable as rope
from ninfer.ops.rope import reference as exact_rope
from ninfer.ops.tolerance import BF16

Op = Callable[..., Any]
_EPS: Final = 1e-6
_MOST_COPIES: Final = 512
_OFFSET: Final = {"eps": _EPS, "unit_offset": True}
_TURN: Final = {"theta": 1e7, "rotary_dim": 64}


@dataclass(frozen=True, slots=True)
class RowOp:
    """An op, the shape of one token's rows, how many such tensors it reads, and its options."""

    name: str
    run: Op
    exact: Op
    shape: tuple[int, ...]
    read: int
    options: dict[str, Any]
    has_weight: bool = False
    written: int = 1


CASES: Final = (
    RowOp("rmsnorm", norm.rmsnorm, exact_norm.rmsnorm, (5120,), 1, _OFFSET, True),
    RowOp("rmsnorm", norm.rmsnorm, exact_norm.rmsnorm, (16, 256), 1, _OFFSET, True),
    RowOp("add_rmsnorm", norm.add_rmsnorm, exact_norm.add_rmsnorm, (2048,), 2, _OFFSET, True, 2),
    RowOp("add_rmsnorm", norm.add_rmsnorm, exact_norm.add_rmsnorm, (5120,), 2, _OFFSET, True, 2),
    RowOp(
        "gated_rmsnorm",
        norm.gated_rmsnorm,
        exact_norm.gated_rmsnorm,
        (48, 128),
        2,
        {"eps": _EPS},
        True,
    ),
    RowOp("l2norm", norm.l2norm, exact_norm.l2norm, (16, 128), 1, {"eps": _EPS}),
    RowOp("mrope", rope.mrope, exact_rope.mrope, (24, 256), 1, _TURN),
    RowOp("silu_mul", elementwise.silu_mul, exact_elementwise.silu_mul, (17408,), 2, {}),
    RowOp("sigmoid_mul", elementwise.sigmoid_mul, exact_elementwise.sigmoid_mul, (6144,), 2, {}),
)


@dataclass(frozen=True, slots=True)
class Rows:
    """An op with inputs for some tokens, in copies that no cache holds together."""

    op: RowOp
    tokens: int
    copies: tuple[tuple[Tensor, ...], ...]
    weight: Tensor | None
    positions: Tensor | None

    @property
    def bytes(self) -> int:
        """Bytes that one call reads and writes."""
        return self.copies[0][0].nbytes * (self.op.read + self.op.written)

    def call(self, run: Op, inputs: tuple[Tensor, ...]) -> Any:
        """The op's result by one of its forms."""
        last = [x for x in (self.weight, self.positions) if x is not None]
        return run(*inputs, *last, **self.op.options)

    def calls(self) -> list[Callable[[], object]]:
        """One call for each copy."""
        return [partial(self.call, self.op.run, inputs) for inputs in self.copies]


def rows(op: RowOp, tokens: int, device: torch.device) -> Rows:
    """The op on random rows."""
    generator = torch.Generator(device).manual_seed(4)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, generator=generator).bfloat16()

    inputs = tuple(noise(tokens, *op.shape) for _ in range(op.read))
    more = min(copies_for(inputs[0].nbytes * op.read), _MOST_COPIES) - 1
    copies = (inputs, *(tuple(x.clone() for x in inputs) for _ in range(more)))
    positions = torch.arange(tokens, device=device).expand(3, -1) + 100_000
    return Rows(
        op=op,
        tokens=tokens,
        copies=copies,
        weight=noise(op.shape[-1]) if op.has_weight else None,
        positions=positions if op.run is rope.mrope else None,
    )


def check(case: Rows) -> None:
    """Raise FormatError unless results meet the bf16 criterion of float64."""
    inputs = case.copies[0]
    got = case.call(case.op.run, inputs)
    want = case.call(case.op.exact, tuple(x.double() for x in inputs))
    pairs = zip(_results(got), _results(want), strict=True)
    found = next((text for pair in pairs if (text := BF16.violation(*pair)) is not None), None)
    if found is not None:
        raise FormatError(
            f"{case.op.name} {list(case.op.shape)}, {case.tokens} tokens: {found}; not timed"
        )


def _results(found: Any) -> tuple[Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)
