"""Bindings and uses of a v3 directory: JSON to values and back."""

from collections.abc import Mapping
from math import prod
from typing import Any

from ninfer.artifact import schema
from ninfer.artifact.directory import Entry, TensorEntry
from ninfer.artifact.model_map import INPUT_DIVISOR, POLICIES, Binding, Part, Use
from ninfer.errors import DirectoryError


def parse_binding(value: object, by_id: Mapping[str, Entry], where: str) -> Binding:
    """One parameter's parts: a whole object, or element ranges one after another.

    Raises DirectoryError that begins with `where`.
    """
    item = schema.json_object(value, where)
    if "object" in item:
        schema.members(value, ("object",), where)
        return (Part(_tensor(item["object"], by_id, where).name),)
    parts = schema.array(schema.members(value, ("parts",), where)["parts"], f"{where}: parts")
    if not parts:
        raise DirectoryError(f"{where}: parts must not be empty")
    return tuple([_parse_part(part, by_id, where) for part in parts])


def _parse_part(value: object, by_id: Mapping[str, Entry], where: str) -> Part:
    item = schema.members(value, ("object", "range"), where)
    entry = _tensor(item["object"], by_id, where)
    bounds = schema.array(item["range"], where)
    if len(bounds) != 2:
        raise DirectoryError(f"{where}: range must have two bounds, got {len(bounds)}")
    start = schema.integer(bounds[0], 0, where)
    stop = schema.integer(bounds[1], 1, where)
    if not start < stop <= prod(entry.shape):
        raise DirectoryError(
            f"{where}: range [{start}, {stop}) does not lie in the {prod(entry.shape)} elements of"
            f" {entry.name!r}"
        )
    return Part(entry.name, (start, stop))


def _tensor(name: object, by_id: Mapping[str, Entry], where: str) -> TensorEntry:
    entry = by_id.get(name) if isinstance(name, str) else None
    if not isinstance(entry, TensorEntry):
        shown = repr(name) if isinstance(name, str) else schema.kind(name)
        raise DirectoryError(f"{where} names {shown}, which is not a tensor of this file")
    return entry


def parse_uses(
    value: object, bindings: Mapping[str, Binding], by_id: Mapping[str, Entry]
) -> tuple[Use, ...]:
    """All uses, each pair of parameter and input at most once.

    Raises DirectoryError for one that breaks the schema or names a parameter without a binding.
    """
    uses = tuple(
        _parse_use(item, bindings, by_id, f"uses[{index}]")
        for index, item in enumerate(schema.array(value, "uses"))
    )
    seen: set[tuple[str, str]] = set()
    for use in uses:
        if use[:2] in seen:
            raise DirectoryError(f"uses has {use.parameter!r} with input {use.input!r} twice")
        seen.add(use[:2])
    return uses


def _parse_use(
    value: object, bindings: Mapping[str, Binding], by_id: Mapping[str, Entry], where: str
) -> Use:
    names = ("parameter", "input", "activation_policy")
    item = schema.members(value, names, where, optional=("auxiliaries",))
    parameter = schema.label(item["parameter"], where)
    if parameter not in bindings:
        raise DirectoryError(f"{where}: parameter {parameter!r} has no binding")
    policy = item["activation_policy"]
    if policy not in POLICIES:
        shown = repr(policy) if isinstance(policy, str) else schema.kind(policy)
        raise DirectoryError(
            f"{where}: activation_policy must be one of {', '.join(POLICIES)}, got {shown}"
        )
    named = schema.json_object(item.get("auxiliaries", {}), where)
    auxiliaries = {
        schema.label(name, where): _parse_auxiliary(name, bound, by_id, where)
        for name, bound in named.items()
    }
    return Use(parameter, schema.label(item["input"], where), policy, auxiliaries)


def _parse_auxiliary(name: str, value: object, by_id: Mapping[str, Entry], where: str) -> Binding:
    binding = parse_binding(value, by_id, f"{where}: {name!r}")
    if name == INPUT_DIVISOR:
        entry = by_id[binding[0].object]
        assert isinstance(entry, TensorEntry)
        if len(binding) != 1 or entry.format != "FP32" or entry.shape != ():
            raise DirectoryError(f"{where}: {name} must bind one fp32 scalar")
    return binding


def encode_binding(binding: Binding) -> dict[str, Any]:
    """The JSON value of a binding; a whole object takes the short form."""
    if len(binding) == 1 and binding[0].span is None:
        return {"object": binding[0].object}
    return {"parts": [{"object": part.object, "range": list(part.span or ())} for part in binding]}


def encode_use(use: Use) -> dict[str, Any]:
    """The JSON value of a use."""
    return {
        "parameter": use.parameter,
        "input": use.input,
        "activation_policy": use.activation_policy,
        "auxiliaries": {name: encode_binding(item) for name, item in use.auxiliaries.items()},
    }
