"""A jinja2 environment in which an untrusted template ends soon and reaches nothing outside.

jinja2's own sandbox hides Python's internals but does not bound work. This module adds a deadline
that every loop turn and call looks at, a largest size of each value, a largest volume of all
values made, a closed list of filters and methods, and no loader (no include, import or extends).
"""

import functools
import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from jinja2 import Template, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

SECONDS_LIMIT: Final = 10.0  # of work of the thread that renders
SOURCE_LIMIT: Final = 128 << 10  # characters of a template; published ones have below 20 000
NODE_LIMIT: Final = 8192  # parts of its syntax tree; published ones have below 1 500
NUMBER_BITS: Final = 256  # of a whole number in arithmetic
SLOW_LIMIT: Final = 64  # characters of an argument of a method in _SLOW_METHODS
VALUE_LIMIT: Final = 16 << 20  # characters of one value, nested ones included
VOLUME_LIMIT: Final = 256 << 20  # characters of all values made by one rendering
ELEMENT_COST: Final = 16  # characters that each element of a value counts for

_FILTERS: Final = (
    "abs capitalize count d default dictsort first float int items last length list lower map max"
    " min reject rejectattr reverse safe select selectattr sort title unique upper"
)
_TEXT_METHODS: Final = (
    "capitalize count endswith find index isalnum isalpha isdigit islower isspace isupper join"
    " lower lstrip partition removeprefix removesuffix replace rfind rpartition rsplit rstrip split"
    " splitlines startswith strip swapcase title upper"
)
# Their time is the length of the text times that of the argument.
_SLOW_METHODS: Final = frozenset(["lstrip", "rfind", "rpartition", "rsplit", "rstrip", "strip"])
_METHODS: Final[tuple[tuple[type, frozenset[str]], ...]] = (
    (str, frozenset(_TEXT_METHODS.split())),
    (dict, frozenset(("get", "items", "keys", "values"))),
    (list, frozenset(("count", "index"))),
    (tuple, frozenset(("count", "index"))),
)
_GLOBALS: Final = ("range", "dict", "namespace", "cycler", "joiner")


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Sandbox with the settings of published chat templates and bounds on time and size.

    One object serves one rendering at a time, since the bounds belong to the rendering in
    progress. A bound that is met raises jinja2's SecurityError.
    """

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols"],
            # Constant folding would run parts of the template before any bound stands.
            optimized=False,
        )
        self.filters = {name: self._bounded(FILTERS[name]) for name in _FILTERS.split()}
        self.filters |= {
            "join": self._join,
            "replace": self._replace,
            "string": self.joined,
            "tojson": self._to_json,
            "trim": self._trim,
        }
        self.globals = {name: self.globals[name] for name in _GLOBALS}
        self._own_calls = frozenset((self.tick, self.checked, self.written, self.joined))
        self._deadline = 0.0
        self._volume_left = 0

    def load(self, source: str) -> tuple[Template, frozenset[str]]:
        """Compile `source`; also gives the names that it reads. Raises jinja2.TemplateError."""
        if len(source) > SOURCE_LIMIT:
            raise SecurityError(f"the template has more than {SOURCE_LIMIT} characters")
        tree = self.parse(source)
        if sum(1 for _ in tree.find_all(nodes.Node)) > NODE_LIMIT:
            raise SecurityError(f"the template has more than {NODE_LIMIT} parts")
        names = frozenset(name.name for name in tree.find_all(nodes.Name) if name.ctx == "load")
        _instrument(tree)
        return Template.from_code(self, self.compile(tree), self.make_globals(None)), names

    def render(self, template: Template, variables: Mapping[str, Any]) -> str:
        """The text of one rendering. `variables` hold JSON-like values only."""
        # Of this thread's work: a machine that stalls makes no template slow.
        self._deadline = time.thread_time() + SECONDS_LIMIT
        self._volume_left = VOLUME_LIMIT
        return "".join(template.generate(variables))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Plain values offer only methods that neither change them nor make large results."""
        for kind, names in _METHODS:
            if isinstance(obj, kind):
                return attr in names
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """No `format`: its field widths make text of any length."""

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic whose result cannot grow without bound."""
        if operator != "+" and not (
            isinstance(left, int | float) and isinstance(right, int | float)
        ):
            raise SecurityError(f"operator {operator} is for numbers only")
        if any(isinstance(side, int) and side.bit_length() > NUMBER_BITS for side in (left, right)):
            raise SecurityError(f"a number has more than {NUMBER_BITS} bits")
        if operator == "**" and (abs(left) > 1 << 16 or abs(right) > 8):
            raise SecurityError("a power is too large")
        return self.checked(super().call_binop(context, operator, left, right))

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Every call in a template: methods of text are priced before they run, results after."""
        if obj in self._own_calls:
            return obj(*args)
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str) and obj.__name__ == "replace":
            return self._replace(owner, *args)
        if isinstance(owner, str) and obj.__name__ == "join":
            return self._join(args[0], owner)
        if isinstance(owner, str) and obj.__name__ in _SLOW_METHODS:
            _check_short(*args, *kwargs.values())
        return self.checked(super().call(context, obj, *args, **kwargs))

    def tick(self) -> bool:
        """True, unless the time is over."""
        if time.thread_time() > self._deadline:
            raise SecurityError(f"rendering takes more than {SECONDS_LIMIT:g} s")
        return True

    def checked(self, value: Any) -> Any:
        """`value` itself, once its size is known to be within the bounds."""
        self.tick()
        _measure(value, strict=False)
        self._spend(len(value) if isinstance(value, str | list | tuple | dict) else 1)
        return value

    def written(self, value: Any) -> str:
        """The text of a value that is printed."""
        return self.joined(value)

    def joined(self, *values: Any) -> str:
        """The texts of `values` joined; only plain values have a text."""
        self.tick()
        self._spend(sum(_measure(value, strict=True) for value in values))
        return "".join(str(value) for value in values)

    def _spend(self, volume: int) -> None:
        self._volume_left -= volume
        if self._volume_left < 0:
            raise SecurityError(f"rendering makes more than {VOLUME_LIMIT} characters")

    def _bounded(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)  # keeps jinja2's marks on what the filter is passed
        def bounded(*args: Any, **kwargs: Any) -> Any:
            return self.checked(original(*args, **kwargs))

        return bounded

    def _join(self, values: Iterable[Any], separator: str = "") -> str:
        texts = [self.joined(value) for value in values]
        self._spend(len(texts) * len(separator))
        return separator.join(texts)

    def _replace(self, text: Any, old: str, new: str, count: int = -1) -> str:
        plain = self.joined(text)
        found = plain.count(old)
        self._spend(len(new) * (found if count is None or count < 0 else min(found, count)))
        return self.joined(plain.replace(old, new, -1 if count is None else count))

    def _trim(self, text: Any, characters: str | None = None) -> str:
        _check_short(characters)
        return self.joined(text).strip(characters)

    def _to_json(self, value: Any, indent: int | None = None) -> str:
        size = _measure(value, strict=True)
        if isinstance(value, Undefined):
            raise SecurityError("tojson was given an undefined value")
        if indent is not None and (not 0 <= indent <= 8 or size > 1 << 16):
            raise SecurityError("tojson cannot indent so much")
        self._spend(size)
        return self.joined(json.dumps(value, ensure_ascii=False, indent=indent))


def _check_short(*arguments: Any) -> None:
    for value in arguments:
        if isinstance(value, str) and len(value) > SLOW_LIMIT:
            raise SecurityError(f"an argument has more than {SLOW_LIMIT} characters")


def _measure(value: Any, *, strict: bool) -> int:
    """Characters in `value`, elements included; `strict` refuses all but plain values.

    Containers that share parts are counted as trees, as printing would walk them.
    """
    size, stack = 0, [value]
    while stack:
        item = stack.pop()
        size += ELEMENT_COST
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict):
            stack += item.keys()
            stack += item.values()
        elif isinstance(item, list | tuple):
            stack += item
        elif isinstance(item, int) and abs(item) >= 1 << 64:
            size += item.bit_length()
        elif strict and not (item is None or isinstance(item, int | float | Undefined)):
            raise SecurityError(f"a {type(item).__name__} has no text")
        if size + len(stack) > VALUE_LIMIT:
            raise SecurityError(f"a value has more than {VALUE_LIMIT} characters")
    return size


def _instrument(tree: nodes.Template) -> None:
    """Route all that makes or prints values, and each loop turn, through the environment."""
    for loop in tree.find_all(nodes.For):
        if loop.test is not None:
            loop.test = nodes.And(_call("tick"), loop.test)
        loop.body.insert(0, nodes.ExprStmt(_call("tick")))
    for output in tree.find_all(nodes.Output):
        output.nodes = [_call("written", _as_value(node)) for node in output.nodes]
    _Rewriter().visit(tree)


class _Rewriter(NodeTransformer):
    """Wraps expressions that build containers, join texts or take long without a call."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        self.generic_visit(node)
        return _call("joined", *node.nodes)

    def visit_List(self, node: nodes.List) -> nodes.Expr:
        self.generic_visit(node)
        return _call("checked", node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:
        self.generic_visit(node)
        return _call("checked", node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        self.generic_visit(node)
        return node if node.ctx == "store" else _call("checked", node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:
        self.generic_visit(node)
        return _call("checked", node) if isinstance(node.arg, nodes.Slice) else node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Expr:
        self.generic_visit(node)
        return nodes.And(_call("tick"), node)

    def visit_Test(self, node: nodes.Test) -> nodes.Expr:
        self.generic_visit(node)
        return nodes.And(_call("tick"), node)


def _call(method: str, *args: nodes.Expr) -> nodes.Call:
    # An environment attribute, unlike a global, cannot be shadowed by a name in the template.
    return nodes.Call(nodes.EnvironmentAttribute(method), list(args), [], None, None)


def _as_value(node: nodes.Expr) -> nodes.Expr:
    return nodes.Const(node.data) if isinstance(node, nodes.TemplateData) else node
