"""Assistant turns as the model wrote them, for prompts that hold them again."""

from collections.abc import Callable
from dataclasses import dataclass

from ninfer.request.prompt import Message


@dataclass(frozen=True, slots=True)
class WrittenTurn:
    """The ids of one answer, its end-of-turn id included.

    They followed `opening`, the text of the prompt behind the token that opens the turn.
    """

    opening: str
    token_ids: tuple[int, ...]


# Takes a digest of all that a prompt holds before a turn, and the turn as the client gives it;
# gives what the model wrote there, if it did.
Recall = Callable[[bytes, Message], WrittenTurn | None]
