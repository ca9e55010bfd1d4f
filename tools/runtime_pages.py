"""Pages made by importing the package: command line and option tables."""

import argparse
import dataclasses
import importlib
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ninfer.options import flag_of
from tools.markdown import code, page, table

# Module and option dataclass, in the order of the page.
OPTION_CLASSES = (
    ("ninfer.engine.options", "EngineOptions"),
    ("ninfer.engine.generation_options", "GenerationOptions"),
    ("ninfer.engine.options", "RunOptions"),
    ("ninfer.client.options", "ChatOptions"),
    ("ninfer.connect.options", "ConnectOptions"),
    ("ninfer.artifact.options", "FetchOptions"),
    ("ninfer.artifact.options", "VerifyOptions"),
    ("ninfer.convert.options", "SynthOptions"),
    ("ninfer.evals.options", "EvalOptions"),
    ("ninfer.audit.options", "AuditOptions"),
    ("ninfer.audit.options", "CompareOptions"),
    ("ninfer.bench.corpus.options", "CorpusOptions"),
    ("ninfer.bench.serve.options", "ServeLoadOptions"),
    ("ninfer.bench.serve.options", "TransportOptions"),
    ("ninfer.server.options", "ServerOptions"),
    ("ninfer.cluster.options", "ClusterOptions"),
    ("ninfer.cluster.options", "LoadOptions"),
    ("ninfer.cluster.options", "MeasureOptions"),
    ("ninfer.fleet.options", "OfferOptions"),
    ("ninfer.fleet.options", "CapOptions"),
    ("ninfer.fleet.options", "CreateOptions"),
)


def cli(root: Path) -> str | None:
    """docs/cli.md: every command and its arguments; None before there is a command line."""
    if not (root / "ninfer" / "cli" / "main.py").exists():
        return None
    main = importlib.import_module("ninfer.cli.main")
    body = ["```text", main.usage(), "```", ""]
    for name, (module_name, _) in main.COMMANDS.items():
        module = importlib.import_module(f"ninfer.cli.{module_name}")
        body += command_section(f"ninfer {name}", module.build_parser())
        for word, inner in getattr(module, "SUBCOMMANDS", {}).items():
            parser = importlib.import_module(f"ninfer.cli.{inner}").build_parser()
            body += command_section(f"ninfer {name} {word}", parser)
    return page("Command line", "What `ninfer --help` and `ninfer COMMAND --help` say.", body)


def command_section(name: str, parser: argparse.ArgumentParser) -> list[str]:
    """A section for one command, and one for each of its subcommands.

    Built from the parser's actions, since the text of `--help` differs between Python versions.
    """
    lines = [f"## {name}", "", (parser.description or "").strip(), ""]
    rows = list(_arguments(parser))
    if rows:
        lines += [*table(["argument", "meaning"], rows), ""]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, child in action.choices.items():
                lines += command_section(f"{name} {word}", child)
    return lines


def _arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        hidden = action.dest == "help" or action.help == argparse.SUPPRESS
        if not hidden and not isinstance(action, argparse._SubParsersAction):
            fields = {**vars(action), "prog": parser.prog}
            yield code(_invocation(action)), (action.help or "") % fields


def _invocation(action: argparse.Action) -> str:
    """`--seed N`, `-q, --quiet` or `FILE`."""
    names = ", ".join(action.option_strings)
    if names and action.nargs == 0:
        return names
    value = action.metavar or (action.dest.upper() if names else action.dest)
    if action.choices is not None and not action.metavar:
        value = "{" + ",".join(str(choice) for choice in action.choices) + "}"
    return f"{names} {value}".strip()


def options(root: Path) -> str | None:
    """docs/options.md: fields of the option dataclasses; None before there are any."""
    body: list[str] = []
    for module_name, class_name in OPTION_CLASSES:
        if not (root / (module_name.replace(".", "/") + ".py")).exists():
            continue
        options_class = getattr(importlib.import_module(module_name), class_name)
        body += [f"## {class_name}", "", options_class.__doc__.split("\n\n")[0], ""]
        rows = [_field(field) for field in dataclasses.fields(options_class)]
        body += [*table(["field", "flag", "type", "default", "meaning"], rows), ""]
    intro = (
        "Fields of the option classes. The command line makes its flags from them. A switch that "
        "is on by default has a flag that turns it off, and its text says what the flag does."
    )
    return page("Options", intro, body) if body else None


def variables(root: Path) -> str | None:
    """docs/variables.md: what the fleet reads from the environment and `.env`."""
    if not (root / "ninfer" / "fleet" / "variables.py").exists():
        return None
    module = importlib.import_module("ninfer.fleet.variables")
    rows = [
        (
            code(variable.name),
            code(variable.default) if variable.default else "",
            variable.meaning + ("; a secret, shown nowhere" if variable.secret else ""),
            code(variable.successor) if variable.successor else "",
        )
        for variable in module.VARIABLES
    ]
    body = table(["variable", "default", "meaning", "replaced by"], rows)
    intro = (
        "Variables of the fleet's commands. An option on the command line comes first, then the "
        "environment, then `.env`, which is read as data and never executed. A secret that neither "
        "has is looked for in the system's keyring, with `pip install 'ninfer[keyring]'`: "
        "`keyring set ninfer VAST_API_KEY` puts it there."
    )
    return page("Variables", intro, body)


def _field(field: dataclasses.Field[Any]) -> tuple[str, str, str, str, str]:
    default = "required"
    if field.default is not dataclasses.MISSING:
        default = code(repr(field.default))
    elif field.default_factory is not dataclasses.MISSING:
        default = code(repr(field.default_factory()))
    flag = code(flag_of(field.name, field.default)) if field.metadata else "(argument)"
    kind = code(type_text(field.type))
    return code(field.name), flag, kind, default, _meaning(field.metadata)


def type_text(kind: Any) -> str:
    """A type as one writes it; `str()` of `Path | None` depends on the Python version."""
    if isinstance(kind, types.UnionType):
        return " | ".join(map(type_text, typing.get_args(kind)))
    if kind is type(None):
        return "None"
    return kind.__name__ if type(kind) is type else str(kind)


def _meaning(metadata: Any) -> str:
    """Help text, the choices, and which of them this version does not have."""
    parts = [str(metadata.get("help", ""))]
    if metadata.get("choices"):
        parts.append("one of " + ", ".join(map(code, metadata["choices"])))
    later = metadata.get("later", ())
    if later == "*":
        parts.append("not available in this version")
    elif later:
        parts.append("not in this version: " + ", ".join(map(code, later)))
    return "; ".join(part for part in parts if part)
