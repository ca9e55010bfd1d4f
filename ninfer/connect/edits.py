"""What is to stand in a configuration file: a path into it, a value, and the model served."""

from dataclasses import dataclass
from typing import Any, Final

# Under which clients list the server. Zed derives the variable of the key from it.
PROVIDER: Final = "ninfer"
DEFAULT_KEY_ENV: Final = "NINFER_API_KEY"


@dataclass(frozen=True, slots=True)
class Match:
    """A path step into an array: the first object with all these members, appended if absent."""

    members: tuple[tuple[str, Any], ...]

    def holds(self, value: object) -> bool:
        """Whether an element is the one meant."""
        return isinstance(value, dict) and all(value.get(k) == v for k, v in self.members)

    def __str__(self) -> str:
        return "[" + ", ".join(f"{name}={value}" for name, value in self.members) + "]"


Path = tuple[str | Match, ...]


@dataclass(frozen=True, slots=True)
class Edit:
    """One value at one path. With `only_if_absent`, what the user wrote there stays."""

    path: Path
    value: Any
    only_if_absent: bool = False


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The server and model that a client is to use.

    `root` is the server's address without `/v1`. `context` is in tokens, None when unknown.
    `needs_key` is None when the server was not asked. `key_env` names the variable that holds
    the key; the key itself is never written. `provider` is the name under which clients list it.
    """

    root: str
    model: str
    context: int | None = None
    vision: bool = False
    needs_key: bool | None = None
    key_env: str = DEFAULT_KEY_ENV
    provider: str = PROVIDER

    @property
    def provider_key_env(self) -> str:
        """The variable that Zed reads the key of the provider from."""
        return f"{self.provider.replace('-', '_').upper()}_API_KEY"

    @property
    def openai_url(self) -> str:
        """Base address of the OpenAI routes."""
        return f"{self.root}/v1"

    @property
    def output(self) -> int | None:
        """Answer tokens that a client may plan for, so that most of the context is for input."""
        return None if self.context is None else max(1, min(32_000, self.context // 4))


def path_text(path: Path) -> str:
    """A path as an error shows it."""
    return ".".join(map(str, path)).replace(".[", "[")


def nested(path: Path, value: Any) -> Any:
    """The value that `path` leads to `value` in, from nothing."""
    for step in reversed(path):
        if isinstance(step, Match):
            value = [{**dict(step.members), **value} if isinstance(value, dict) else value]
        else:
            value = {step: value}
    return value
