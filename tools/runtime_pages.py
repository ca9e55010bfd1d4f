"""Pages made by importing the package: command line and option tables."""

import argparse
import contextlib
import dataclasses
import importlib
import io
from pathlib import Path
from typing import Any
from unittest import mock

from tools.markdown import code, page, table

# Module, its option dataclasses, and the heading above each table.
OPTION_CLASSES = (
    ("ninfer.engine.options", "EngineOptions"),
    ("ninfer.engine.options", "GenerationOptions"),
    ("ninfer.server.options", "ServerOptions"),
)


def cli(root: Path) -> str | None:
    """docs/cli.md: usage and arguments of every command; None before there is a command line."""
    if not (root / "ninfer" / "cli" / "main.py").exists():
        return None
    main = importlib.import_module("ninfer.cli.main")
    body: list[str] = []
    for name in main.COMMANDS:
        body += _command(f"ninfer {name}", parser_of([name], main.main))
    return page("Command line", "Every command, as `ninfer COMMAND --help` gives it.", body)


def parser_of(argv: list[str], run: Any) -> argparse.ArgumentParser:
    """The parser that answers `argv --help`, caught at the moment when it would print."""
    caught: list[argparse.ArgumentParser] = []

    def catch(parser: argparse.ArgumentParser, file: object = None) -> None:
        caught.append(parser)

    with (
        mock.patch.object(argparse.ArgumentParser, "print_help", catch),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.suppress(SystemExit),
    ):
        run([*argv, "--help"])
    assert caught, f"{argv} --help prints no help"
    return caught[0]


def _command(name: str, parser: argparse.ArgumentParser) -> list[str]:
    """A section for one command, and one for each of its subcommands.

    Built from the parser's actions, since the text of `--help` differs between Python versions.
    """
    lines = [f"## {name}", "", (parser.description or "").strip(), ""]
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, child in action.choices.items():
                lines += ["", *_command(f"{name} {word}", child)]
        elif action.dest != "help" and action.help != argparse.SUPPRESS:
            rows.append(_argument(action, parser))
    return [
        *lines[:4],
        *(table(["argument", "default", "meaning"], rows) if rows else []),
        *lines[4:],
        "",
    ]


def _argument(action: argparse.Action, parser: argparse.ArgumentParser) -> tuple[str, str, str]:
    value = action.metavar or (action.dest if not action.option_strings else action.dest.upper())
    if action.choices is not None:
        value = "{" + ",".join(str(choice) for choice in action.choices) + "}"
    names = ", ".join(action.option_strings)
    shown = f"{names} {value}" if names and action.nargs != 0 else names or str(value)
    fields = {**vars(action), "prog": parser.prog}
    return code(shown), _default(action.default), (action.help or "") % fields


def _default(value: object) -> str:
    if value in (None, argparse.SUPPRESS) or value is False:
        return ""
    return code(str(value))


def options(root: Path) -> str | None:
    """docs/options.md: fields of the option dataclasses; None before there are any."""
    body: list[str] = []
    for module_name, class_name in OPTION_CLASSES:
        if not (root / (module_name.replace(".", "/") + ".py")).exists():
            continue
        options_class = getattr(importlib.import_module(module_name), class_name)
        body += [f"## {class_name}", "", options_class.__doc__.split("\n\n")[0], ""]
        rows = [_field(field) for field in dataclasses.fields(options_class)]
        body += [*table(["option", "type", "default", "meaning"], rows), ""]
    intro = "Options of the Python interface; the command line takes the same names as flags."
    return page("Options", intro, body) if body else None


def _field(field: dataclasses.Field[Any]) -> tuple[str, str, str, str]:
    kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", "")
    if not kind or "|" in str(field.type):
        kind = str(field.type)
    default = "required"
    if field.default is not dataclasses.MISSING:
        default = code(repr(field.default))
    elif field.default_factory is not dataclasses.MISSING:
        default = code(repr(field.default_factory()))
    return code(field.name), code(kind), default, str(field.metadata.get("help", ""))
