"""Declare an option once: a dataclass field with default, help, choices and availability."""

from collections.abc import Sequence
from dataclasses import field, fields
from typing import Any

from ninfer.errors import UnsupportedError, UsageError


def option(
    default: Any,
    text: str,
    *,
    metavar: str = "",
    choices: Sequence[str] = (),
    later: str | Sequence[str] = (),
    unset: str = "not set",
    environment: str = "",
) -> Any:
    """A documented field.

    `later` is "*" when any other value than the default, or the list of values, needs machinery
    that this version does not have. `unset` says what holds while the value is None or empty.
    `environment` names a variable that the command line reads when the flag is not given.
    """
    metadata = {
        "help": text,
        "metavar": metavar,
        "choices": tuple(choices),
        "later": later,
        "unset": unset,
        "environment": environment,
    }
    return field(default=default, metadata=metadata)


def flag_of(name: str, default: object) -> str:
    """The command-line spelling of a field; a boolean that is on by default is switched off."""
    prefix = "--no-" if default is True else "--"
    return prefix + name.replace("_", "-")


def refuse_later(options: Any) -> None:
    """Refuse options whose machinery is not there yet. Raises UnsupportedError."""
    for spec in fields(options):
        value, later = getattr(options, spec.name), spec.metadata.get("later", ())
        if value != spec.default and (later == "*" or value in later):
            shown = "" if value is True else f" {value}"
            flag = flag_of(spec.name, spec.default)
            raise UnsupportedError(f"{flag}{shown}: not available in this version of ninfer")


def check_choices(options: Any) -> None:
    """Refuse a value outside a field's choices. Raises UsageError naming the option."""
    for spec in fields(options):
        choices, value = spec.metadata.get("choices"), getattr(options, spec.name)
        if choices and value is not None and value not in choices:
            allowed = ", ".join(choices)
            raise UsageError(f"{flag_of(spec.name, None)} {value}: must be one of {allowed}")


def arguments_of(options: Any) -> list[str]:
    """The command-line arguments that say what differs from the defaults."""
    found: list[str] = []
    for spec in fields(options):
        value = getattr(options, spec.name)
        if "help" not in spec.metadata or value == spec.default:
            continue
        flag = flag_of(spec.name, spec.default)
        if isinstance(value, bool):
            found.append(flag)
        elif isinstance(value, tuple):
            found += [word for item in value for word in (flag, str(item))]
        else:
            found += [flag, str(value)]
    return found
