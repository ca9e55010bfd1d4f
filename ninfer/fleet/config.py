"""Settings of the fleet: the environment, then `.env` read as data, the keyring, defaults."""

import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ninfer.connect import amend_file, read_dotenv, set_dotenv
from ninfer.errors import UsageError
from ninfer.fleet.variables import BY_NAME, VARIABLES
from ninfer.fleet.vault import SERVICE, Vault

NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Settings:
    """Values by variable, where each came from, and the folders that they lead to.

    Nothing is checked before it is used, so that a bad value of one variable never stands in the
    way of a command that does not need it; least of all in the way of `destroy`.
    """

    values: Mapping[str, str] = field(repr=False)  # keys are among them
    origins: Mapping[str, str]
    dotenv: Path
    records: Path  # the fleet's database, locks and host keys
    vault: Vault = field(default_factory=Vault, repr=False)

    def text(self, name: str) -> str:
        """The value, or the variable's default; a secret that is set nowhere, of the keyring."""
        variable = BY_NAME[name]
        if variable.secret and name not in self.values:
            return self.vault.get(name)
        return self.values.get(name, variable.default)

    def secret(self, name: str) -> str:
        """A value that must be there. Raises UsageError naming the variable and the file."""
        value = self.text(name)
        if not value:
            raise UsageError(
                f"{name} is not set; put it into the environment, {self.dotenv} or the keyring "
                f"(keyring set {SERVICE} {name})"
                + (f"; {self.vault.problem}" if self.vault.problem else "")
            )
        return value

    def number(self, name: str) -> float:
        """A finite number from 0 up. Raises UsageError naming the variable and its origin."""
        text = self.text(name)
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf"):
            origin = self.origins.get(name, "default")
            raise UsageError(f"{name}={text} ({origin}): must be a number from 0 up")
        return value

    def path(self, name: str) -> Path:
        """A path, with `~` for the home folder."""
        return Path(self.text(name)).expanduser()

    def refuse_old(self) -> None:
        """Refuse variables that something else replaced. Raises UsageError with the successor."""
        for name in self.values:
            variable = BY_NAME[name]
            if variable.successor and self.values[name]:
                raise UsageError(
                    f"{name} is not used ({variable.meaning}); set {variable.successor} instead"
                )

    def refuse_readable(self) -> None:
        """Refuse a `.env` with secrets that others may read. Raises UsageError with the remedy."""
        secrets = [name for name, origin in self.origins.items() if origin == str(self.dotenv)]
        if not any(BY_NAME[name].secret for name in secrets):
            return
        mode = stat.S_IMODE(self.dotenv.stat().st_mode)
        if mode & 0o077:
            raise UsageError(
                f"{self.dotenv} holds secrets and has mode {mode:03o}; run chmod 600 {self.dotenv}"
            )

    def redact(self, text: str) -> str:
        """The text with the value of every secret replaced."""
        for name, value in (*self.values.items(), *self.vault.found.items()):
            if BY_NAME[name].secret and len(value) >= 4:
                text = text.replace(value, f"<{name}>")
        return text

    def write_base_url(self, url: str) -> None:
        """Put NINFER_BASE_URL into `.env`, made readable by its owner only if it is new."""
        if not self.dotenv.exists():
            self.dotenv.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.dotenv, os.O_CREAT | os.O_WRONLY, 0o600))
        amend_file(self.dotenv, lambda text: set_dotenv(text, "NINFER_BASE_URL", url), keep=False)


def load_settings(
    environ: Mapping[str, str],
    folder: Path,
    home: Path,
    keyring: Callable[[str], str | None] | None = None,
) -> Settings:
    """Read the environment and the `.env` of NINFER_PROJ, else of `folder`.

    Secrets that neither has are asked of `keyring` when they are needed.

    Records lie in NINFER_PROJ/.ninfer-fleet when that is set, else in the user's state folder: what
    bills is the same whichever folder one stands in. Raises UsageError for a `.env` that cannot be
    read.
    """
    project = environ.get("NINFER_PROJ", "")
    base = Path(project).expanduser() if project else folder
    state = Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state")
    dotenv = base / ".env"
    from_file = _read(dotenv)
    values: dict[str, str] = {}
    origins: dict[str, str] = {}
    for variable in VARIABLES:
        for source, origin in ((environ, "environment"), (from_file, str(dotenv))):
            if variable.name in source:
                values[variable.name] = source[variable.name]
                origins[variable.name] = origin
                break
    records = base / ".ninfer-fleet" if project else state / "ninfer" / "fleet"
    return Settings(values, origins, dotenv, records, Vault(keyring))


def _read(path: Path) -> dict[str, str]:
    try:
        return read_dotenv(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def check_name(name: str) -> None:
    """Refuse a machine's name that a label cannot hold. Raises UsageError."""
    if not NAME.fullmatch(name) or name.isdigit():
        raise UsageError(f"{name!r}: a name is 1 to 32 of a-z, 0-9 and '-', and not a number alone")
