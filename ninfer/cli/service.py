"""`ninfer service`: a server as a systemd unit, shown or installed."""

import argparse
import getpass
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ninfer.cli import serve
from ninfer.cli.arguments import Parser, Subparser, add_options, collect, parse
from ninfer.errors import UsageError
from ninfer.options import option
from ninfer.server.options import ServedEngineOptions, ServerOptions, check_server
from ninfer.server.unit import Unit, first_environment, refuse_secrets

_SYSTEM: Final = Path("/etc/systemd/system")
_SYSTEM_ENVIRONMENT: Final = Path("/etc/ninfer")


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Where a unit goes and what it is called."""

    name: str = option("ninfer", "name of the unit")
    system: bool = option(False, "for the machine, started at boot; needs root")
    account: str | None = option(
        None, "with --system: account that it runs as", metavar="USER", unset="the one of sudo"
    )
    folder: Path | None = option(None, "folder of units", unset="systemd's")
    start: bool = option(False, "enable and start it at once")


def build_parser() -> Parser:
    """The subcommands of `ninfer service`."""
    parser = Parser(
        "service",
        "Run a server under systemd. Options of 'ninfer serve' follow the artifact behind '--'. "
        "Keys belong into the unit's environment file, which only its owner can read.",
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="show|install", parser_class=Subparser
    )
    for name, text in (("show", "Print the unit."), ("install", "Write the unit.")):
        command = commands.add_parser(name, description=text)
        add_options(command, ServiceOptions)
        command.add_argument("artifact", metavar="ARTIFACT", help="artifact to serve")
        command.add_argument(
            "serve", nargs="*", metavar="-- OPTION", help="options of 'ninfer serve'"
        )
    return parser


def main(argv: Sequence[str]) -> int:
    """Show or install."""
    namespace = parse(build_parser(), argv)
    options = collect(namespace, ServiceOptions)
    unit = _unit(namespace, options)
    text = unit.text()
    if namespace.command == "show":
        print(text, end="")
        return 0
    path = _folder(options) / f"{options.name}.service"
    _write(unit, text, path)
    print(path)
    if options.start:
        _start(options)
    else:
        scope = "" if options.system else " --user"
        _say(f"start it: systemctl{scope} enable --now {options.name}")
    return 0


def _unit(namespace: argparse.Namespace, options: ServiceOptions) -> Unit:
    if options.account and not options.system:
        raise UsageError("--account: only a unit of --system runs as another account")
    environment = _environment_file(options)
    refuse_secrets(namespace.serve, environment)
    artifact = Path(namespace.artifact)
    shown = str(artifact.resolve()) if artifact.exists() else namespace.artifact
    # Options that the server would refuse are refused now, not in a journal.
    asked = parse(serve.build_parser(), [shown, *namespace.serve])
    server = collect(asked, ServerOptions)
    engine = collect(asked, ServedEngineOptions, artifact=asked.artifact)
    check_server(server, serve.engine_of(engine, server))
    return Unit(
        name=options.name,
        python=sys.executable,
        arguments=(shown, *namespace.serve),
        environment_file=environment,
        drain_seconds=server.drain_s,
        account=_account(options),
    )


def _account(options: ServiceOptions) -> str | None:
    if not options.system:
        return None
    account = options.account or os.environ.get("SUDO_USER")
    if not account or account == "root":
        raise UsageError("--system: --account USER names the account to run as; not root")
    return account


def _folder(options: ServiceOptions) -> Path:
    if options.folder is not None:
        return options.folder
    return _SYSTEM if options.system else _settings() / "systemd" / "user"


def _environment_file(options: ServiceOptions) -> Path:
    folder = _SYSTEM_ENVIRONMENT if options.system else _settings() / "ninfer"
    if options.folder is not None:
        folder = options.folder
    return (folder / f"{options.name}.env").absolute()


def _settings() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def _write(unit: Unit, text: str, path: Path) -> None:
    """The unit in one step, and an environment file where there is none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.tmp")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
        file = unit.environment_file
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
                opened.write(first_environment(unit.name))
            if unit.account is not None and os.geteuid() == 0:
                shutil.chown(file, unit.account)
    except LookupError as error:
        raise UsageError(f"--account {unit.account}: no such account") from error
    except OSError as error:
        why = error.strerror or str(error)
        who = getpass.getuser()
        raise UsageError(
            f"{error.filename or path}: {why} for {who}; --system needs root"
        ) from error


def _start(options: ServiceOptions) -> None:
    scope = [] if options.system else ["--user"]
    for arguments in (["daemon-reload"], ["enable", "--now", options.name]):
        try:
            subprocess.run(["systemctl", *scope, *arguments], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise UsageError(f"systemctl {' '.join(arguments)}: {error}") from error


def _say(text: str) -> None:
    print(text, file=sys.stderr)
