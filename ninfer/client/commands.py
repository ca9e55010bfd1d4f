"""Lines that begin with a slash in the chat: what they are called, take and do."""

import shlex
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from ninfer.client.conversation import Conversation
from ninfer.client.images import image_url
from ninfer.errors import UsageError

COMMANDS: Final = {
    "image": "[PATH]      send an image with the next question; without PATH, send none",
    "system": "[TEXT]     set the system text; show it without TEXT",
    "reset": "            forget the conversation; the system text stays",
    "save": "PATH         write the conversation as JSON",
    "help": "             list the commands",
    "quit": "             leave; Ctrl-D does it as well",
}


@dataclass(frozen=True, slots=True)
class Done:
    """What a command has to say, and whether the program is to end."""

    text: str
    quits: bool = False


def run_command(line: str, conversation: Conversation) -> Done | None:
    """Carry out a line; None when it is a question: without a slash, or with two.

    Raises UsageError for an unknown command or one that cannot be carried out.
    """
    if not line.startswith("/") or line.startswith("//"):
        return None
    name, _, rest = line[1:].partition(" ")
    rest = rest.strip()
    match name:
        case "image":
            if not rest:
                conversation.drop_images()
                return Done("no image goes with the next question")
            conversation.attach(image_url(_path(name, rest)))
            return Done(f"{conversation.pending_images} image(s) go with the next question")
        case "system":
            if rest:
                conversation.system = rest
            return Done(f"system: {conversation.system or 'none'}")
        case "reset":
            conversation.reset()
            return Done("the conversation is empty")
        case "save":
            conversation.save(_path(name, rest))
            return Done(f"{len(conversation.messages)} messages in {_path(name, rest)}")
        case "help":
            return Done("\n".join(f"/{known} {text}" for known, text in COMMANDS.items()))
        case "quit" | "exit":
            return Done("", quits=True)
    near = get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean /{near[0]}?" if near else "/help lists the commands"
    raise UsageError(f"/{name}: unknown; {hint} A question may begin with two slashes")


def _path(name: str, text: str) -> Path:
    """The path behind a command; quotes and backslashes are read as a shell does."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"/{name} {text}: {error}") from None
    if len(words) != 1:
        raise UsageError(f"/{name} takes one PATH; put quotes around one with spaces")
    return Path(words[0]).expanduser()
