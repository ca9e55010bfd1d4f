"""Secrets that the system's keyring holds: asked for once, and not before they are needed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ninfer.errors import UsageError

# The name under which a keyring has the fleet's secrets; the variable is the user's name there.
SERVICE: Final = "ninfer"


@dataclass(slots=True)
class Vault:
    """What `lookup` says of a variable, remembered.

    `lookup` returns None for what the keyring lacks and raises UsageError when it cannot be asked:
    that is kept in `problem`, so that it stops only a command that needs the secret.
    """

    lookup: Callable[[str], str | None] | None = None
    found: dict[str, str] = field(default_factory=dict, repr=False)
    problem: str = ""

    def get(self, name: str) -> str:
        """The secret, empty when there is none."""
        if name not in self.found:
            value = None
            if self.lookup is not None:
                try:
                    value = self.lookup(name)
                except UsageError as error:
                    self.problem = str(error)
            self.found[name] = value or ""
        return self.found[name]
