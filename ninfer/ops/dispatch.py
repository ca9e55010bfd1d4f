"""Which implementation of each op runs: one backend for the process, with swaps for self-tests."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final, Generic, ParamSpec, TypeVar

from ninfer.errors import UnsupportedError

P = ParamSpec("P")
R = TypeVar("R")

REFERENCE: Final = "reference"

_forms: dict[str, dict[str, Callable[..., Any]]] = {REFERENCE: {}}
# The backend of the process; an op that is imported later has to have a form in it too.
_backend = REFERENCE
_routes: dict[str, "Route[Any, Any]"] = {}


class Route(Generic[P, R]):
    """The chosen implementation of one op; its contract calls `run`.

    The op is named after its reference function. Every other form has the same name and signature.
    A plain attribute keeps the cost of a call at one lookup.
    """

    __slots__ = ("name", "run")

    def __init__(self, reference: Callable[P, R]) -> None:
        self.name = reference.__name__
        self.run: Callable[P, R] = reference
        assert self.name not in _routes, self.name
        _forms[REFERENCE][self.name] = reference
        _routes[self.name] = self
        self.run = _select(_backend, [self.name])[self.name]


def op_names() -> tuple[str, ...]:
    """Names of all ops that have been imported, sorted."""
    return tuple(sorted(_routes))


def current(names: Collection[str]) -> dict[str, Callable[..., Any]]:
    """The chosen form of each of these ops, for a measurement that wraps them."""
    return {name: _routes[name].run for name in names}


def register(backend: str, *functions: Callable[..., Any]) -> None:
    """Make functions the forms of the ops they are named after, in a backend other than reference.

    Raises ValueError for a name that is not an op. Nothing is chosen by this.
    """
    if backend == REFERENCE:
        raise ValueError("register: the reference forms come from the contracts")
    for function in functions:
        if function.__name__ not in _routes:
            raise ValueError(f"register: {function.__name__} is not an op")
        _forms.setdefault(backend, {})[function.__name__] = function


def set_backend(backend: str) -> None:
    """Choose the form of every op for this process; called once, when an engine starts.

    Raises UnsupportedError when the backend lacks a form of any op: nothing falls back silently.
    """
    global _backend
    for name, form in _select(backend, op_names()).items():
        _routes[name].run = form
    _backend = backend


@contextmanager
def using(
    backend: str, *, only: Collection[str] | None = None, without: Collection[str] = ()
) -> Iterator[None]:
    """Run ops by another backend inside a `with`: all of them, `only` some, or all `without` some.

    The choice is process-wide, so this is for self-tests, not for a serving process. Raises
    UnsupportedError for a missing form and ValueError for a name that is not an op.
    """
    for name in (*(only or ()), *without):
        if name not in _routes:
            raise ValueError(f"using: {name} is not an op")
    wanted = [n for n in op_names() if (only is None or n in only) and n not in without]
    chosen = _select(backend, wanted)
    before = {name: _routes[name].run for name in chosen}
    try:
        for name, form in chosen.items():
            _routes[name].run = form
        yield
    finally:
        for name, form in before.items():
            _routes[name].run = form


def _select(backend: str, names: Collection[str]) -> dict[str, Callable[..., Any]]:
    forms = _forms.get(backend)
    if forms is None:
        raise UnsupportedError(
            f"backend {backend!r}: this version has {', '.join(map(repr, sorted(_forms)))}"
        )
    missing = [name for name in names if name not in forms]
    if missing:
        raise UnsupportedError(f"backend {backend!r} has no form of {', '.join(missing)}")
    return {name: forms[name] for name in names}
