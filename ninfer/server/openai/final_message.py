"""add_generation_prompt and continue_final_message: how the prompt of a conversation ends."""

from dataclasses import replace
from typing import Final

from ninfer.request import Conversation
from ninfer.server.errors import Refusal

_MEMBER: Final = "continue_final_message"


def ended(conversation: Conversation, add: bool | None, goes_on: bool) -> Conversation:
    """The conversation with the ending that `add` (add_generation_prompt) and `goes_on`
    (continue_final_message) ask for.

    Raises Refusal if both are true, or for a last message that cannot be gone on with.
    """
    if add and goes_on:
        raise Refusal(
            "continue_final_message and add_generation_prompt are both true; to go on with the "
            "last message set add_generation_prompt to false, or leave it out",
            code="unsupported_value",
            param=_MEMBER,
        )
    if not goes_on:
        template = replace(conversation.template, add_generation_prompt=add is not False)
        return replace(conversation, template=template)
    last = conversation.messages[-1]
    text = "".join(part.text for part in last.content)
    if last.role != "assistant":
        raise _closed(f"has the role {last.role}")
    if last.tool_calls or any(part.kind != "text" for part in last.content):
        raise _closed("has more than text")
    if not (text or last.reasoning):
        raise _closed("is empty")
    return replace(
        conversation,
        messages=conversation.messages[:-1],
        begun=text,
        begun_thought=last.reasoning or "",
    )


def _closed(reason: str) -> Refusal:
    return Refusal(
        f"continue_final_message is true, and the last message {reason}; end messages with an "
        "assistant message of text, or use /v1/completions",
        code="unsupported_value",
        param=_MEMBER,
    )
