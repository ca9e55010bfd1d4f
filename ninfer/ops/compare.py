"""Run one case of an op against the float64 reference: results, state effects, inputs unchanged."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ninfer.formats import Fp8RowMatrix, GroupedMatrix, Nvfp4Matrix
from ninfer.ops.case import Case
from ninfer.ops.dispatch import REFERENCE, resident, using
from ninfer.ops.tensors import ExpertWeights, PagedKV, SharedExpert
from ninfer.ops.tolerance import criterion

# Their tensors are stored words: the same in the oracle's run, and compared bit for bit.
_WEIGHTS = (GroupedMatrix, Nvfp4Matrix, Fp8RowMatrix)
_WORDS = (PagedKV, *_WEIGHTS)


def compare(
    case: Case, dtype: torch.dtype, device: torch.device | str = "cpu", seed: int = 0
) -> list[str]:
    """What is wrong with the op's chosen form on this case; empty when it is right.

    The case runs by the form that dispatch has chosen with activations of `dtype` and weights
    re-tiled as that form wants them, and by the reference with the same values widened to float64.
    Float results and float state are judged by the criterion of their own type, which must be the
    reference's; indices, codes and cache words must be equal. State slots that the reference leaves
    alone must keep their bits, and so must every other argument.
    """
    call = case.make(dtype, device, seed)
    oracle = {name: _widened(value) for name, value in call.arguments.items()}
    oracle_before = _copied(oracle)
    plain = _copied(call.arguments)
    arguments = {name: _loaded(name, value) for name, value in call.arguments.items()}
    before = _copied(arguments)
    actual = case.op(**arguments)
    with using(REFERENCE):
        expected = case.op(**oracle)
        own_type = case.op(**plain)
    found = _results(actual, expected, case.roundings) + _types(actual, own_type)
    for name, value in arguments.items():
        if name not in call.changed:
            found += _inputs(name, value, before[name])
        elif isinstance(value, _WORDS):
            found += _inputs(name, value, oracle[name])
        else:
            old, new = oracle_before[name], oracle[name]
            found += _state(name, (value, before[name], new, old), case.roundings)
    return [f"{case.id}: {problem}" for problem in found]


def _loaded(name: str, value: Any) -> Any:
    """An argument as an engine would hold it: stored weights in the chosen resident form."""
    if isinstance(value, _WEIGHTS):
        return resident(value, paired=name == "gate_up")
    if isinstance(value, (ExpertWeights, SharedExpert)):
        # Each of the two as it lies: an expert's gate rows do not stand beside its up rows.
        return replace(value, gate_up=_loaded("", value.gate_up), down=_loaded("", value.down))
    return value


def _results(actual: Any, expected: Any, roundings: int) -> list[str]:
    got, want = dict(_tensors("result", actual)), dict(_tensors("result", expected))
    if got.keys() != want.keys():
        return [f"gives {sorted(got)}, not {sorted(want)}"]
    found = [(name, _differs(got[name], want[name], roundings)) for name in got]
    return [f"{name}: {problem}" for name, problem in found if problem]


def _types(actual: Any, own_type: Any) -> list[str]:
    """Results whose type is not that of the reference on the same, not widened, arguments."""
    wanted = {name: tensor.dtype for name, tensor in _tensors("result", own_type)}
    found = [(name, tensor.dtype, wanted.get(name)) for name, tensor in _tensors("result", actual)]
    return [f"{name}: is {got}, not {want}" for name, got, want in found if got != want]


def _inputs(name: str, after: Any, before: Any) -> list[str]:
    pairs = zip(_tensors(name, after), _tensors(name, before), strict=True)
    return [f"{path}: not as it must be" for (path, x), (_, y) in pairs if not _same_bits(x, y)]


def _state(name: str, values: tuple[Any, Any, Any, Any], roundings: int) -> list[str]:
    """The state after and before, and the reference's after and before."""
    parts = (_tensors(name, value) for value in values)
    return [
        f"{path}: {problem}"
        for (path, x), (_, y), (_, z), (_, w) in zip(*parts, strict=True)
        if (problem := _slots(x, y, z, w, roundings)) is not None
    ]


def _slots(
    after: Tensor, before: Tensor, expected: Tensor, old: Tensor, roundings: int
) -> str | None:
    """What is wrong with state slots, of which `expected` says which ones change from `old`."""
    touched = (expected != old).unsqueeze(-1).flatten(1).any(1)  # [S]
    if not _same_bits(after[~touched], before[~touched]):
        return "a slot that the op does not own has changed"
    return _differs(after[touched], expected[touched], roundings)


def _differs(actual: Tensor, expected: Tensor, roundings: int) -> str | None:
    if actual.shape != expected.shape:
        return f"has shape {tuple(actual.shape)}, not {tuple(expected.shape)}"
    if actual.is_floating_point() and expected.is_floating_point():
        return criterion(actual.dtype, roundings).violation(actual, expected)
    return None if torch.equal(actual, expected) else "is not equal to the reference"


def _same_bits(x: Tensor, y: Tensor) -> bool:
    """Equal as bytes, so that NaN equals itself and -0 differs from 0."""
    words = (x.contiguous().flatten().view(torch.uint8), y.contiguous().flatten().view(torch.uint8))
    return torch.equal(*words)


def _tensors(path: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """Every tensor inside a value, with the path to it."""
    if isinstance(value, Tensor):
        yield path, value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _tensors(f"{path}.{field.name}", getattr(value, field.name))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _tensors(f"{path}[{index}]", item)


def _copied(value: Any) -> Any:
    """The value with every tensor cloned."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {name: _copied(item) for name, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _copied(getattr(value, f.name)) for f in fields(value)})
    return value


def _widened(value: Any) -> Any:
    """A clone with float tensors and float types as float64; stored words stay as they are."""
    if isinstance(value, Tensor):
        return value.to(torch.float64, copy=True) if value.is_floating_point() else value.clone()
    if isinstance(value, torch.dtype):
        return torch.float64 if value.is_floating_point else value
    if is_dataclass(value) and not isinstance(value, (type, *_WORDS)):
        return replace(value, **{f.name: _widened(getattr(value, f.name)) for f in fields(value)})
    return _copied(value)


def margin(
    case: Case, dtype: torch.dtype, device: torch.device | str = "cpu", seed: int = 0
) -> float:
    """The part of its bound that the worst float result of the chosen form takes, 1 at the bound.

    Results alone, by the same inputs and criteria as `compare`, which also judges state; 0 where
    nothing is a float.
    """
    call = case.make(dtype, device, seed)
    oracle = {name: _widened(value) for name, value in call.arguments.items()}
    arguments = {name: _loaded(name, value) for name, value in call.arguments.items()}
    actual = dict(_tensors("result", case.op(**arguments)))
    with using(REFERENCE):
        expected = dict(_tensors("result", case.op(**oracle)))
    return max(
        (
            criterion(got.dtype, case.roundings).share(got, expected[name])
            for name, got in actual.items()
            if got.is_floating_point() and expected[name].is_floating_point()
        ),
        default=0.0,
    )
