"""`ninfer connect`: a client's configuration for a running server, printed or written."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ninfer.cli.arguments import Parser, add_options, collect, parse
from ninfer.client import ChatServer, ModelCard, root_of
from ninfer.connect import (
    CLIENTS,
    DEFAULT_URL,
    Client,
    ConnectOptions,
    ServedModel,
    amend_file,
    check_connect,
    find_client,
)
from ninfer.errors import ServerError, UsageError


def build_parser() -> Parser:
    """The options of `ninfer connect`, read from the option dataclass."""
    parser = Parser("connect", "Configure another program for a running server.")
    parser.add_argument("client", metavar="CLIENT", help=" | ".join(CLIENTS))
    parser.add_argument(
        "url",
        metavar="URL",
        nargs="?",
        default=DEFAULT_URL,
        help=f"address of the server (default: {DEFAULT_URL})",
    )
    add_options(parser, ConnectOptions)
    return parser


def main(argv: Sequence[str]) -> int:
    """Print what goes into the client's file, or put it there."""
    namespace = parse(build_parser(), argv)
    client = find_client(namespace.client)
    options = collect(namespace, ConnectOptions)
    check_connect(options)
    server = _ask(root_of(namespace.url), options)
    default = not options.keep_default
    path = options.file or client.location(os.environ, Path.home())
    if options.write:
        _write(client, server, path, default=default)
    else:
        print(client.amend("", server, client.name, default=default), end="")
        _say(f"goes into {path}; --write puts it there and keeps the rest")
    for note in client.notes(server, default=default):
        _say(note)
    return 0


def _write(client: Client, server: ServedModel, path: Path, *, default: bool) -> None:
    def change(text: str) -> str:
        return client.amend(text, server, str(path), default=default)

    changed, backup = amend_file(path, change)
    if not changed:
        _say(f"{path}: has it already; nothing was changed")
        return
    _say(f"{path}: written" + (f"; the file as it was: {backup}" if backup else ""))


def _ask(root: str, options: ConnectOptions) -> ServedModel:
    """The server's model. One that does not answer is made up for by --model and --context."""
    try:
        cards, needs_key = _models(root, options.key_env)
    except ServerError as error:
        if error.status in (401, 403):
            raise
        if options.model is None:
            raise ServerError(f"{error}; or give --model NAME and --context N") from None
        _say(f"{error}; going by --model and --context")
        return ServedModel(
            root,
            options.model,
            options.context,
            key_env=options.key_env,
            provider=options.provider,
        )
    card = _choose(root, cards, options.model)
    return ServedModel(
        root,
        card.id,
        card.context if options.context is None else options.context,
        card.vision,
        needs_key,
        options.key_env,
        options.provider,
    )


def _models(root: str, key_env: str) -> tuple[list[ModelCard], bool]:
    """The models, and whether the server wants a key. Asked without one first, to find out."""
    try:
        with ChatServer(root, None, key_env) as server:
            return server.models(), False
    except ServerError as error:
        key = os.environ.get(key_env)
        if error.status not in (401, 403) or not key:
            raise
    with ChatServer(root, key, key_env) as server:
        return server.models(), True


def _choose(root: str, cards: Sequence[ModelCard], name: str | None) -> ModelCard:
    if not cards:
        raise ServerError(f"{root}: lists no models")
    if name is None:
        return cards[0]
    for card in cards:
        if card.id == name:
            return card
    known = ", ".join(card.id for card in cards)
    raise UsageError(f"--model {name}: {root} has {known}")


def _say(text: str) -> None:
    print(text, file=sys.stderr)
