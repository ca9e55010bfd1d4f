"""What a user may ask of `ninfer connect`: defaults, help and checks."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ninfer.connect.edits import DEFAULT_KEY_ENV, PROVIDER
from ninfer.errors import UsageError
from ninfer.options import option

DEFAULT_URL: Final = "http://127.0.0.1:8080"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROVIDER: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """How a client is connected."""

    write: bool = option(
        False, "change the client's file, after a backup, in place of printing what goes into it"
    )
    file: Path | None = option(
        None, "configuration file to change", metavar="FILE", unset="the client's own"
    )
    keep_default: bool = option(
        False, "only add the server; the model that the client starts with stays"
    )
    model: str | None = option(
        None, "model name to use", metavar="NAME", unset="the first that the server lists"
    )
    context: int | None = option(
        None, "context length in tokens", metavar="N", unset="what the server says"
    )
    key_env: str = option(
        DEFAULT_KEY_ENV, "variable that holds the server's key; the key is not written"
    )
    provider: str = option(
        PROVIDER,
        "name under which the client lists the server; Zed reads the key from NAME_API_KEY",
        metavar="NAME",
        environment="NINFER_PROVIDER",
    )


def check_connect(options: ConnectOptions) -> None:
    """Raises UsageError naming the option and the value that is wrong."""
    if not _VARIABLE.fullmatch(options.key_env):
        # The text may be the key itself, so it is not shown.
        raise UsageError("--key-env: must be the name of an environment variable, not a key")
    check_provider("--provider", options.provider)
    if options.context is not None and options.context < 1:
        raise UsageError(f"--context {options.context}: must be positive")
    if options.model is not None and not options.model.strip():
        raise UsageError(f"--model {options.model!r}: must be a name")
    if options.file is not None and not options.write:
        raise UsageError(f"--file {options.file}: needs --write; without it nothing is changed")


def check_provider(flag: str, name: str) -> None:
    """Raises UsageError for what is no plain name; it becomes part of files and of variables."""
    if not _PROVIDER.fullmatch(name):
        raise UsageError(f"{flag} {name!r}: must be letters, digits, - and _, a letter first")
