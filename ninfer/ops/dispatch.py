"""Which implementation of each op runs: chosen once for the process, with swaps for self-tests.

A form of an op is its reference or one of a tier of kernels (`ninfer.ops.tiers`). The choice is
made for all ops at once when an engine starts, and stated in its log; no single call ever falls
back to another form.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Generic, ParamSpec, TypeVar

from ninfer.errors import UnsupportedError
from ninfer.ops import tiers
from ninfer.ops.tensors import StoredWeight, Weight

P = ParamSpec("P")
R = TypeVar("R")
Residence = Callable[[StoredWeight, bool], Weight]

REFERENCE: Final = "reference"
TRITON: Final = "triton"


def _as_stored(weight: StoredWeight, paired: bool) -> Weight:
    """The resident form of weights that the reference reads: the stored one."""
    return weight


def _always_reference(op: str) -> str:
    return REFERENCE


_forms: dict[str, dict[str, Callable[..., Any]]] = {REFERENCE: {}}
_residences: dict[str, Residence] = {REFERENCE: _as_stored}
# The form of an op in this process; one that is imported later has to have a form in it too.
_chosen: Callable[[str], str] = _always_reference
_residence: Residence = _as_stored
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
        self.run = _select(_chosen(self.name), [self.name])[self.name]


def op_names() -> tuple[str, ...]:
    """Names of all ops that have been imported, sorted."""
    return tuple(sorted(_routes))


def register(tier: str, *functions: Callable[..., Any]) -> None:
    """Make functions the forms of the ops they are named after, in a tier.

    Raises ValueError for a name that is not an op. Nothing is chosen by this.
    """
    if tier == REFERENCE:
        raise ValueError("register: the reference forms come from the contracts")
    for function in functions:
        if function.__name__ not in _routes:
            raise ValueError(f"register: {function.__name__} is not an op")
        _forms.setdefault(tier, {})[function.__name__] = function


def register_residence(tier: str, residence: Residence) -> None:
    """Say how a tier wants weights to stay in memory; see `resident`."""
    _residences[tier] = residence


def resident(weight: StoredWeight, *, paired: bool = False) -> Weight:
    """A weight in the form that the chosen kernels read, re-tiled on its device at load.

    `paired` is for the matrix of `linear_swiglu`: each gate row is laid beside its up row. The
    bytes are the same, up to padding rows; a weight that is right as it is comes back itself.
    """
    return _residence(weight, paired)


def set_backend(backend: str, architecture: int | None = None) -> Mapping[str, str]:
    """Choose the form of every op for this process; called once, when an engine starts.

    "reference" runs every op by plain torch. "triton" takes for each op the best tier that has a
    kernel on `architecture` (ten times the compute capability), and the reference for ops without
    any. Gives the form of each op. Raises UnsupportedError for another backend, an architecture
    without kernels, a missing Triton, or an op whose tier lacks its form.
    """
    global _chosen, _residence
    choose = _chooser(backend, architecture)
    choice = {name: choose(name) for name in op_names()}
    functions = {name: _select(form, [name])[name] for name, form in choice.items()}
    residence = _best_residence(set(choice.values()))
    for name, function in functions.items():
        _routes[name].run = function
    _chosen, _residence = choose, residence
    return choice


def forms_in_words(choice: Mapping[str, str]) -> str:
    """A choice of `set_backend` for a log line: the ops of each form."""
    names: dict[str, list[str]] = {}
    for op, form in choice.items():
        names.setdefault(form, []).append(op)
    return "; ".join(f"{form}: {', '.join(sorted(ops))}" for form, ops in sorted(names.items()))


@contextmanager
def using(
    form: str, *, only: Collection[str] | None = None, without: Collection[str] = ()
) -> Iterator[None]:
    """Run ops by another form inside a `with`: all of them, `only` some, or all `without` some.

    The choice is process-wide, so this is for self-tests, not for a serving process. Raises
    UnsupportedError for a missing form and ValueError for a name that is not an op.
    """
    global _residence
    for name in (*(only or ()), *without):
        if name not in _routes:
            raise ValueError(f"using: {name} is not an op")
    wanted = [n for n in op_names() if (only is None or n in only) and n not in without]
    chosen = _select(form, wanted)
    before = {name: _routes[name].run for name in chosen}
    residence = _residence
    try:
        for name, function in chosen.items():
            _routes[name].run = function
        _residence = _residences.get(form, _residence)
        yield
    finally:
        _residence = residence
        for name, function in before.items():
            _routes[name].run = function


def _chooser(backend: str, architecture: int | None) -> Callable[[str], str]:
    if backend == REFERENCE:
        return _always_reference
    if backend != TRITON:
        raise UnsupportedError(
            f"backend {backend!r}: this version has {REFERENCE!r} and {TRITON!r}"
        )
    if architecture is None or not (found := tiers.tiers_on(architecture)):
        raise UnsupportedError(
            f"backend {TRITON!r}: no kernels for sm_{architecture or 'none'}; a card from sm_80 "
            f"to sm_121 has them, any other machine takes backend {REFERENCE!r}"
        )
    return lambda op: tiers.tier_of(op, found) or REFERENCE


def _best_residence(forms: Collection[str]) -> Residence:
    """The resident form of the best tier in use, which the tiers behind it read as well."""
    for tier in tiers.TIERS:
        if tier.name in forms:
            _load(tier.name)
            return _residences[tier.name]
    return _as_stored


def _load(form: str) -> None:
    """Import the kernels of a tier when it is first asked for: a CPU machine has no Triton."""
    if form in _forms or form not in {tier.name for tier in tiers.TIERS}:
        return
    try:
        from ninfer.ops import portable  # noqa: F401 - registers its forms
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        raise UnsupportedError(
            f"form {form!r}: the triton package is missing; pip install triton (a CUDA build of "
            "torch brings it)"
        ) from None


def _select(form: str, names: Collection[str]) -> dict[str, Callable[..., Any]]:
    _load(form)
    forms = _forms.get(form)
    if forms is None:
        raise UnsupportedError(
            f"form {form!r}: this version has {', '.join(map(repr, sorted(_forms)))}"
        )
    missing = [name for name in names if name not in forms]
    if missing:
        raise UnsupportedError(f"{form!r} has no form of {', '.join(missing)}")
    return {name: forms[name] for name in names}
