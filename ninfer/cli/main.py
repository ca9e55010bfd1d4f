"""The table of commands; each is imported when it is called."""

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

from ninfer.artifact.packaged import NAMES
from ninfer.cli.streams import abandon_stdout, prepare_streams, signals_as_exits
from ninfer.errors import FleetError, NInferError, UsageError
from ninfer.kits.home import any_kit
from ninfer.version import VERSION

# Name, module below ninfer.cli, what it does. A module offers build_parser() and main(argv).
COMMANDS: Final = {
    "run": ("run", "answer one prompt"),
    "serve": ("serve", "serve a model over HTTP: OpenAI and Anthropic protocols, a page"),
    "chat": ("chat", "talk with a model of a server or an artifact"),
    "connect": ("connect", "configure another program for a running server"),
    "plan": ("plan", "tell what fits into a device's memory"),
    "describe": ("describe", "list what an artifact holds"),
    "convert": ("convert", "make an artifact from a Hugging Face checkpoint"),
    "fetch": ("fetch", "download a published artifact"),
    "verify": ("verify", "check a file: structure, inventory, stored words, hash"),
    "synth": ("synth", "write an artifact with random weights"),
    "service": ("service", "run a server under systemd: show or install the unit"),
    "doctor": ("doctor", "tell what stands in the way on this machine, and the fix"),
    "selftest": ("selftest", "compare every op of this machine with its reference"),
    "kit": ("kit", "build, check and install kernels compiled ahead of time"),
    "offers": ("fleet.offers", "list machines for rent"),
    "create": ("fleet.create", "rent a machine, or end it again if anything fails"),
    "provision": ("fleet.provision", "make a machine serve; goes on where it was"),
    "restore": ("fleet.restore", "install the kit on a machine again, restart its server"),
    "status": ("fleet.status", "show all that bills, what it costs and when it ends"),
    "up": ("fleet.up", "start a stopped machine"),
    "down": ("fleet.down", "stop a machine; its disk bills on"),
    "destroy": ("fleet.destroy", "end a machine, and make sure of it"),
    "ssh": ("fleet.ssh", "log in to a machine"),
    "log": ("fleet.log", "follow the server's log on a machine"),
    "build": ("fleet.build", "build a kit on a machine from a git ref"),
    "kit-pack": ("fleet.kit_pack", "download the kit that a machine built, and check it"),
    "log-build": ("fleet.log_build", "follow the log of the build on a machine"),
    "kit-url": ("fleet.kit_url", "tell where the kit of a card comes from"),
    "tunnel": ("fleet.tunnel", "offer a machine's server at a fixed local address"),
    "badhosts": ("fleet.badhosts", "list machines that failed and are avoided"),
    "reap": ("fleet.reap", "end what bills without reason"),
    "cluster": ("cluster", "serve by several replicas on Ray; plan how many a load needs"),
    "evals": ("evals", "score an artifact on a suite of questions, compare two runs"),
    "audit": ("audit", "judge stored responses of any server: endings, loops, contracts"),
    "bench": ("bench", "measure this machine beside a baseline or a roof"),
}

# Commands that launch kernels, which an installed kit may hold.
_WITH_KERNELS: Final = ("run", "serve", "cluster", "chat", "evals", "bench", "selftest")

EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

# A damaged file can put a megabyte of text into a name.
LONGEST_ERROR: Final = 1000


def usage() -> str:
    """The text of `ninfer --help`."""
    width = max(map(len, COMMANDS))
    lines = [
        "usage: ninfer COMMAND [OPTIONS]",
        "       ninfer ARTIFACT [OPTIONS]        the same as ninfer run ARTIFACT",
        "",
        "commands:",
        *(f"  {name:{width}}  {text}" for name, (_, text) in COMMANDS.items()),
        "",
        "'ninfer COMMAND --help' lists the options of a command; 'ninfer --version' the version.",
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; errors a user can cause become one line on stderr and an exit status."""
    # Threads that wait in a spin loop make small CPU models many times slower on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        prepare_streams()
        with signals_as_exits():
            status = _dispatch(arguments)
            sys.stdout.flush()
        return status
    except UsageError as error:
        return _fail(error, EXIT_USAGE)
    except FleetError as error:
        return _fail(error, error.exit_status)
    except NInferError as error:
        return _fail(error, EXIT_FAILURE)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except OSError as error:
        # Only a stream has no name here; files are named by the errors of their readers.
        if error.filename is not None:
            raise
        abandon_stdout()
        reader_left = isinstance(error, BrokenPipeError)
        return EXIT_FAILURE if reader_left else _fail(f"stdout: {error.strerror}", EXIT_FAILURE)


def serve() -> int:
    """The script `ninfer-serve`: the same as `ninfer serve`."""
    return main(["serve", *sys.argv[1:]])


def _dispatch(arguments: list[str]) -> int:
    known = ", ".join(COMMANDS)
    if not arguments:
        raise UsageError(f"no command given; known: {known}, or a path to an artifact")
    name = arguments[0]
    if name in ("-h", "--help", "help"):
        print(usage())
        return 0
    if name == "--version":
        print(VERSION)
        return 0
    if name in COMMANDS:
        return _call(name, arguments[1:])
    if name.startswith("-"):
        raise UsageError(f"unknown option {name} before a command; see 'ninfer --help'")
    if name not in NAMES and not os.path.exists(name):
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"{name!r} is neither a command ({known}) nor an existing artifact{hint}")
    return _call("run", arguments)


def _call(name: str, arguments: list[str]) -> int:
    try:
        if name in _WITH_KERNELS and any_kit():
            from ninfer.kits.use import use_kit

            use_kit()
        module = importlib.import_module(f"ninfer.cli.{COMMANDS[name][0]}")
        status: int = module.main(arguments)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("ninfer"):
            raise
        remedy = "install ninfer with pip, or use the environment that has it"
        if error.name == "asyncssh":
            remedy = "pip install 'ninfer[fleet]' brings it"
        if error.name == "ray":
            remedy = "pip install 'ninfer[cluster]' brings it"
        raise UsageError(
            f"package {error.name!r} is not installed for {sys.executable}; {remedy}"
        ) from error
    return status


def _fail(error: Exception | str, status: int) -> int:
    text = " ".join(str(error).split("\n"))
    if len(text) > LONGEST_ERROR:
        text = text[:LONGEST_ERROR] + "..."
    print(f"ninfer: error: {text}", file=sys.stderr)
    return status
