"""Dataclass fields to command-line arguments and back; defaults and help live in the dataclass."""

import argparse
import os
import shutil
import types
import typing
from collections.abc import Collection, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from ninfer.artifact.packaged import NAMES, locate
from ninfer.errors import UsageError
from ninfer.options import flag_of
from ninfer.request import LogitBias

T = TypeVar("T")

# What an option holds that was not on the command line.
_NOT_GIVEN: Final = object()


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line and whose options cannot be abbreviated."""

    def __init__(self, name: str, summary: str) -> None:
        super().__init__(
            prog=f"ninfer {name}",
            description=summary,
            allow_abbrev=False,
            formatter_class=_formatter,
        )

    def error(self, message: str) -> NoReturn:
        """Raise UsageError in place of printing the usage and leaving."""
        raise UsageError(f"{message}; see '{self.prog} --help'")


class Subparser(Parser):
    """What argparse makes for a subcommand, which it names itself."""

    def __init__(self, *, prog: str, description: str, **_: Any) -> None:
        super().__init__(prog.removeprefix("ninfer "), description)


def _formatter(prog: str) -> argparse.HelpFormatter:
    width = min(shutil.get_terminal_size().columns, 100)
    return argparse.HelpFormatter(prog, max_help_position=30, width=width)


def add_artifact(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the positional argument that names a .ninfer file, shown as `name`."""

    def read(text: str) -> Path:
        return locate(path_of(name, text))

    text = f".ninfer file; {' or '.join(NAMES)}: that of the package, unless a file has the name"
    parser.add_argument("artifact", type=read, metavar=name, help=text)


def add_options(
    parser: argparse._ActionsContainer, options: type[Any], *, without: Collection[str] = ()
) -> None:
    """Add one argument for each field that has help text and is not in `without`."""
    hints = typing.get_type_hints(options)
    for spec in fields(options):
        if "help" in spec.metadata and spec.name not in without:
            _add(parser, spec, hints[spec.name])


def collect(namespace: argparse.Namespace, options: type[T], **given: Any) -> T:
    """Build the dataclass from parsed arguments; `given` are fields without an argument."""
    specs = [spec for spec in fields(options) if "help" in spec.metadata]  # type: ignore[arg-type]  # T is always a dataclass here
    values = {s.name: _given_or_default(namespace, s) for s in specs if s.name not in given}
    return options(**values, **given)


def refuse_given(options: Any, reason: str) -> None:
    """Raises UsageError for the first option that was given: these do not apply here."""
    for spec in fields(options):
        if "help" in spec.metadata and getattr(options, spec.name) != spec.default:
            raise UsageError(f"{flag_of(spec.name, spec.default)}: {reason}")


def given_names(namespace: argparse.Namespace, options: type[Any]) -> frozenset[str]:
    """Fields whose flag was on the command line; their value may still be the default."""
    return frozenset(
        spec.name
        for spec in fields(options)
        if "help" in spec.metadata and _is_given(getattr(namespace, spec.name), spec)
    )


def _is_given(value: Any, spec: "Field[Any]") -> bool:
    if isinstance(spec.default, bool):
        return bool(value != spec.default)
    return value is not _NOT_GIVEN and value != ()


def _add(parser: argparse._ActionsContainer, spec: "Field[Any]", hint: Any) -> None:
    flag = flag_of(spec.name, spec.default)
    text = spec.metadata["help"].replace("%", "%%") + _default_text(spec)
    if isinstance(spec.default, bool):
        action = "store_false" if spec.default else "store_true"
        parser.add_argument(flag, dest=spec.name, action=action, help=text)
        return
    repeated = typing.get_origin(hint) is tuple
    choices = spec.metadata["choices"]
    metavar = spec.metadata["metavar"] or "|".join(choices) or None
    parser.add_argument(
        *_short(spec),
        flag,
        dest=spec.name,
        type=_reader(flag, _scalar(hint), bool("auto" in (metavar or "") and not choices)),
        action=_Append if repeated else _Once,
        default=() if repeated else _NOT_GIVEN,
        metavar=metavar,
        help=text,
    )


def _given_or_default(namespace: argparse.Namespace, spec: "Field[Any]") -> Any:
    """The flag's value, else that of its environment variable, else the field's default."""
    value = getattr(namespace, spec.name)
    if value is not _NOT_GIVEN and value != ():
        return value
    variable, choices = spec.metadata["environment"], spec.metadata["choices"]
    value = os.environ.get(variable) if variable else None
    if not value:
        return spec.default
    if isinstance(spec.default, tuple):
        return (value,)
    if choices and value not in choices:
        flag = flag_of(spec.name, spec.default)
        raise UsageError(f"{variable}={value}: must be one of {', '.join(choices)} (see {flag})")
    return value


def _short(spec: "Field[Any]") -> list[str]:
    return ["-o"] if spec.name == "output" else []


class _Once(argparse.Action):
    """Take a value, and refuse a second one, which would silently win."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not _NOT_GIVEN:
            raise UsageError(f"{option_string} is given twice; give it once")
        setattr(namespace, self.dest, values)


class _Append(argparse.Action):
    """Collect a repeatable option in a tuple."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, (*getattr(namespace, self.dest), values))


def _default_text(spec: "Field[Any]") -> str:
    if spec.default is MISSING:
        return ""
    if isinstance(spec.default, bool):
        shown = "off"
    else:
        empty = spec.default is None or spec.default == ()
        shown = spec.metadata["unset"] if empty else str(spec.default)
    variable, later = spec.metadata["environment"], spec.metadata["later"]
    notes = [f"default: {shown}"]
    if variable:
        notes.append(f"or ${variable}")
    if later:
        which = "" if later == "*" else ", ".join(later) + " "
        notes.append(f"{which}not available in this version")
    return f" ({'; '.join(notes)})"


def _scalar(hint: Any) -> type[Any]:
    """The scalar type of a field: `int | None` and `tuple[int, ...]` are int."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union, tuple):
        return next(t for t in typing.get_args(hint) if t not in (type(None), Ellipsis))  # type: ignore[no-any-return]  # get_args is untyped
    return hint  # type: ignore[no-any-return]  # hints come from get_type_hints


def _reader(flag: str, kind: type[Any], auto: bool) -> typing.Callable[[str], Any]:
    if kind is Path:
        return lambda text: path_of(flag, text)
    if kind is LogitBias:
        return lambda text: _bias_of(flag, text)

    def read(text: str) -> Any:
        if auto and text == "auto":
            return text if kind is str else None
        try:
            return kind(text)
        except ValueError as error:
            word = {int: "a whole number", float: "a number"}.get(kind, kind.__name__)
            raise UsageError(f"{flag} {text!r}: must be {word}") from error

    return read


def _bias_of(flag: str, text: str) -> LogitBias:
    try:
        return LogitBias.parse(text)
    except ValueError:
        raise UsageError(f"{flag} {text!r}: must be a token id and a number, 17=-2.5") from None


def path_of(name: str, text: str) -> Path:
    """A path that is not empty; Path("") would silently mean the current folder."""
    if not text:
        raise UsageError(f"{name} '': must be a path")
    return Path(text)


def read_text(flag: str, path: Path) -> str:
    """A UTF-8 file named by an option, less a byte order mark.

    Raises UsageError naming the option and the path.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{flag} {path}: {reason}") from error


def parse(parser: Parser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse all of argv; an unknown option is an error."""
    return parser.parse_args(argv)
