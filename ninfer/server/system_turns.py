"""Where system messages of agent protocols go, which come at any place."""

from collections.abc import Sequence
from dataclasses import replace

from ninfer.request import Message


def settle_system(messages: Sequence[Message]) -> list[Message]:
    """System messages before the first answer lead; a later one joins the turn before it.

    So what a client adds on its way leaves the prompt before it as it was, and cached.
    """
    settled: list[Message] = []
    answered = False
    for message in messages:
        answered = answered or message.role == "assistant"
        if message.role != "system" or not answered:
            settled.append(message)
        elif settled[-1].role == "assistant":
            settled.append(replace(message, role="user"))
        else:
            last = settled.pop()
            first, *rest = message.content or (None,)
            gap = () if first is None else (replace(first, text="\n\n" + first.text), *rest)
            settled.append(replace(last, content=(*last.content, *gap)))
    return settled
