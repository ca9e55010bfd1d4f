"""Which member of a body an error is about, where what raised it knows no body."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ninfer.server.body import place
from ninfer.server.errors import Fault

# Members of one meaning in the protocols; errors from inside name one of them.
_NAMES: Final = (
    ("messages", "input", "prompt", "content", "tokens"),
    (
        "response_format",
        "text",
        "output_config",
        "output_format",
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "structured_outputs",
    ),
    ("max_tokens", "max_completion_tokens", "max_output_tokens"),
)
# What becomes part of the prompt or of a grammar, so that half a character matters there.
_READ: Final = ("instructions", "system", "tools", *_NAMES[0], *_NAMES[1])
_SURROGATES: Final = ("\ud800", "\udfff")


def placed(fault: Fault, body: Mapping[str, Any]) -> Fault:
    """The fault with a `param` that the body has, as exact as can be told."""
    if fault.param is None:
        return fault
    if "surrogate" in fault.message:
        read = {name: body[name] for name in _READ if body.get(name) is not None}
        found = next(_halves(read, ()), None)
        if found is not None:
            return replace(fault, param=place(found))
    for names in _NAMES:
        if fault.param in names and body.get(fault.param) is None:
            param = next((name for name in names if body.get(name) is not None), fault.param)
            return replace(fault, param=param)
    return fault


def _halves(value: Any, path: tuple[int | str, ...]) -> Iterator[tuple[int | str, ...]]:
    """Where strings hold half a surrogate pair; for the name of a member, the object."""
    stack: list[tuple[Any, tuple[int | str, ...]]] = [(value, path)]
    while stack:
        item, path = stack.pop()
        if isinstance(item, str):
            if _is_half(item):
                yield path
        elif isinstance(item, Mapping):
            if any(map(_is_half, item)):
                yield path
            stack += reversed([(inner, (*path, name)) for name, inner in item.items()])
        elif isinstance(item, list):
            stack += reversed([(inner, (*path, index)) for index, inner in enumerate(item)])


def _is_half(text: str) -> bool:
    return not text.isascii() and any(_SURROGATES[0] <= letter <= _SURROGATES[1] for letter in text)
