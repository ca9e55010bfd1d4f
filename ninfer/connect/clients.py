"""The clients that can be connected: where their file is, what goes into it, what to do next."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from ninfer.connect import jsonc_edit, locations, recipes, toml_edit
from ninfer.connect.dotenv import amend_open_webui
from ninfer.connect.edits import Edit, ServedModel
from ninfer.errors import UsageError


class _Recipe(Protocol):
    def __call__(self, server: ServedModel, *, default: bool) -> Iterator[Edit]: ...


class _Amend(Protocol):
    def __call__(self, text: str, server: ServedModel, where: str, *, default: bool) -> str: ...


_Edits = Callable[[str, Sequence[Edit], str], str]


@dataclass(frozen=True, slots=True)
class Client:
    """One client program.

    `amend(text, server, where, default=...)` gives the text of its configuration with the server
    in it, and with `default` as the model it starts with; everything else stays. It raises
    ClientConfigError naming `where`, and UsageError for what the client cannot have.
    """

    name: str
    location: Callable[[locations.Environment, Path], Path]
    amend: _Amend
    start: str  # what the user runs afterwards; {provider} and {model} are filled in
    start_once: str = ""  # the same when the default has not been changed
    dummy_key: bool = False  # whether it wants the variable set for a server without keys

    def notes(self, server: ServedModel, *, default: bool) -> Iterator[str]:
        """What else the user has to do, one line each."""
        if server.needs_key is None:
            yield f"the server was not asked; if it wants a key, set {server.key_env} to it"
        elif server.needs_key:
            yield f"set {server.key_env} to the server's key before you start it"
        elif self.dummy_key:
            yield f"the server wants no key, {self.name} does: export {server.key_env}=unused"
        if self.name == "open-webui":
            yield from _web_notes(server)
        start = self.start if default else self.start_once or self.start
        yield "then: " + start.format(provider=server.provider, model=server.model)


def _with(apply: _Edits, recipe: _Recipe) -> _Amend:
    def amend(text: str, server: ServedModel, where: str, *, default: bool) -> str:
        return apply(text, list(recipe(server, default=default)), where)

    return amend


def _web(text: str, server: ServedModel, where: str, *, default: bool) -> str:
    return amend_open_webui(text, server, where)


def _web_notes(server: ServedModel) -> Iterator[str]:
    yield (
        "Open WebUI reads these variables at its first start; later, add the address under Admin "
        "Settings, Connections, or set ENABLE_PERSISTENT_CONFIG=False"
    )
    if urlsplit(server.root).hostname in ("127.0.0.1", "localhost", "::1"):
        yield (
            "inside Docker this machine is host.docker.internal, not the loopback address; connect "
            "that address, and start the server with --host 0.0.0.0 and a key"
        )


_ALL: Final = (
    Client(
        "opencode",
        locations.opencode,
        _with(jsonc_edit.amend, recipes.opencode),
        "opencode",
        "opencode --model {provider}/{model}",
    ),
    Client(
        "claude-code",
        locations.claude_code,
        _with(jsonc_edit.amend, recipes.claude_code),
        "claude",
    ),
    Client(
        "codex",
        locations.codex,
        _with(toml_edit.amend, recipes.codex),
        "codex",
        "codex -c model_provider={provider} --model {model}",
    ),
    Client(
        "qwen-code",
        locations.qwen_code,
        _with(jsonc_edit.amend, recipes.qwen_code),
        "qwen",
        "qwen, and choose {model} with /model",
        dummy_key=True,
    ),
    Client(
        "zed",
        locations.zed,
        _with(jsonc_edit.amend, recipes.zed),
        "zed, and open the Agent panel",
        "zed, and choose {model} in the Agent panel",
        dummy_key=True,
    ),
    Client(
        "open-webui",
        locations.open_webui,
        _web,
        "open-webui serve, or docker compose up",
    ),
)
CLIENTS: Final = {client.name: client for client in _ALL}


def find_client(name: str) -> Client:
    """The client of that name. Raises UsageError listing the known ones."""
    if name not in CLIENTS:
        raise UsageError(f"CLIENT {name!r}: unknown; known: {', '.join(CLIENTS)}")
    return CLIENTS[name]
