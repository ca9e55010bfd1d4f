"""The table of commands; each is imported when it is called."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

from ninfer.errors import NInferError, UsageError
from ninfer.version import VERSION

# Name, module below ninfer.cli, what it does. A module offers build_parser() and main(argv).
COMMANDS: Final = {
    "run": ("run", "answer one prompt"),
    "describe": ("describe", "list what an artifact holds"),
    "convert": ("convert", "make an artifact from a Hugging Face checkpoint"),
    "synth": ("synth", "write an artifact with random weights"),
    "bench": ("bench", "measure this machine beside a baseline or a roof"),
}

EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130


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
        return _dispatch(arguments)
    except UsageError as error:
        return _fail(error, EXIT_USAGE)
    except NInferError as error:
        return _fail(error, EXIT_FAILURE)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of stdout is gone; without this, flushing at exit would raise once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        raise UsageError(
            f"no command given; known: {', '.join(COMMANDS)}, or a path to an artifact"
        )
    if arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    if arguments[0] == "--version":
        print(VERSION)
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        if not name.startswith("-") and not os.path.exists(name):
            raise UsageError(
                f"{name!r} is neither a command ({', '.join(COMMANDS)}) nor an existing artifact"
            )
        return _call("run", arguments)
    return _call(name, arguments[1:])


def _call(name: str, arguments: list[str]) -> int:
    module = importlib.import_module(f"ninfer.cli.{COMMANDS[name][0]}")
    status: int = module.main(arguments)
    return status


def _fail(error: Exception, status: int) -> int:
    text = " ".join(str(error).split("\n"))
    print(f"ninfer: error: {text}", file=sys.stderr)
    return status
