"""`ninfer chat`: a conversation in the terminal, with a server or with an artifact itself."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from ninfer.artifact.packaged import locate
from ninfer.cli.arguments import Parser, add_options, collect, parse, path_of, refuse_given
from ninfer.cli.chat_screen import ChatScreen
from ninfer.cli.streams import interrupts_heard
from ninfer.client import (
    Answer,
    ChatEvent,
    ChatOptions,
    ChatServer,
    Conversation,
    check_chat,
    is_address,
    request_fields,
    root_of,
    run_command,
)
from ninfer.engine.options import EngineOptions, check_engine
from ninfer.errors import NInferError, UsageError
from ninfer.log import configure


class Partner(Protocol):
    """Who answers: `answer` shows events as they come, and may be interrupted by Ctrl-C."""

    name: str

    def answer(
        self, messages: Sequence[dict[str, Any]], show: Callable[[ChatEvent], None]
    ) -> None: ...


class _ServerPartner:
    """A server and the model of it that was chosen."""

    def __init__(self, server: ChatServer, options: ChatOptions) -> None:
        self._server = server
        self._fields = request_fields(options)
        cards = server.models()
        model = options.model or (cards[0].id if cards else None)
        if model is not None:
            self._fields["model"] = model
        self.name = f"{model or 'a model'} at {server.root}"

    def answer(self, messages: Sequence[dict[str, Any]], show: Callable[[ChatEvent], None]) -> None:
        body = {**self._fields, "messages": list(messages)}
        with contextlib.closing(self._server.stream(body)) as events:
            for event in events:
                show(event)


def build_parser() -> Parser:
    """The options of `ninfer chat`, read from the option dataclasses."""
    parser = Parser(
        "chat",
        "Talk with a model, of a server or of an artifact. Lines that begin with a slash are "
        "commands; /help lists them. A line that ends with a backslash goes on in the next one. "
        "Ctrl-C ends an answer, Ctrl-D the conversation.",
    )
    parser.add_argument(
        "partner", metavar="URL|ARTIFACT", help="address of a server, or .ninfer file"
    )
    add_options(parser.add_argument_group("conversation"), ChatOptions)
    add_options(parser.add_argument_group("engine, for an ARTIFACT"), EngineOptions)
    return parser


def main(argv: Sequence[str]) -> int:
    """Talk until the input ends."""
    namespace = parse(build_parser(), argv)
    options = collect(namespace, ChatOptions)
    check_chat(options)
    configure("warning")
    address = is_address(namespace.partner)
    artifact = path_of("URL|ARTIFACT", namespace.partner)
    engine = collect(namespace, EngineOptions, artifact=artifact if address else locate(artifact))
    if address:
        refuse_given(
            engine, f"is for an artifact; the engine at {namespace.partner} is set up already"
        )
        key = os.environ.get(options.key_env)
        with ChatServer(root_of(namespace.partner), key, options.key_env) as server:
            served = _ServerPartner(server, options)
            with interrupts_heard(False):
                return _talk(served, options)
    if options.model is not None:
        raise UsageError(f"--model {options.model}: is for a server; an artifact holds one model")
    check_engine(engine)

    # Importing torch takes a second; options are checked before.
    from ninfer.cli.chat_engine import engine_partner

    with engine_partner(engine, options) as partner, interrupts_heard(False):
        return _talk(partner, options)


def _talk(partner: Partner, options: ChatOptions) -> int:
    conversation = Conversation(options.system or "")
    screen = ChatScreen()
    screen.note(f"{partner.name}; /help lists the commands, Ctrl-D leaves")
    for line in _questions(screen):
        try:
            done = run_command(line, conversation)
        except UsageError as error:
            screen.note(str(error))
            continue
        if done is None:
            _turn(partner, conversation, screen, line.removeprefix("/"))
        elif done.quits:
            break
        else:
            screen.note(done.text)
    return 0


def _turn(partner: Partner, conversation: Conversation, screen: ChatScreen, text: str) -> None:
    """One question and its answer; a failure ends the turn and not the program."""
    conversation.ask(text)
    answer = Answer()

    def show(event: ChatEvent) -> None:
        answer.add(event)
        screen.show(event)

    problem = ""
    try:
        with interrupts_heard(True):
            partner.answer(conversation.messages, show)
    except KeyboardInterrupt:
        problem = "cancelled"
    except NInferError as error:
        problem = str(error)
    screen.end_lines()
    kept = conversation.close_turn(answer)
    if problem:
        rest = "" if kept else "; your question is not part of the conversation"
        if conversation.pending_images:
            rest += ", its images wait for the next one (/image drops them)"
        screen.note(problem + rest)


def _questions(screen: ChatScreen) -> Iterator[str]:
    """Lines of the user that say something, until the input ends; Ctrl-C starts one anew."""
    parts: list[str] = []
    while True:
        try:
            with interrupts_heard(True):
                line = screen.ask(more=bool(parts))
        except EOFError:
            screen.end_lines()
            line = None
        except KeyboardInterrupt:
            screen.note("\nCtrl-D or /quit leaves")
            parts = []
            continue
        if line is not None and line.endswith("\\"):
            parts.append(line[:-1])
            continue
        text = "\n".join(parts if line is None else [*parts, line]).strip()
        parts = []
        if text:
            yield text
        if line is None:
            return
