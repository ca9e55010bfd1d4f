"""A client of the OpenAI protocol, for this engine's server and for others."""

from ninfer.client.address import is_address, root_of
from ninfer.client.cards import ModelCard
from ninfer.client.commands import Done, run_command
from ninfer.client.conversation import Conversation
from ninfer.client.events import (
    Answer,
    AnswerEnd,
    AnswerText,
    ChatEvent,
    EndDetails,
    FunctionCall,
    ReasoningText,
    TokenUsage,
)
from ninfer.client.options import ChatOptions, check_chat, given_values, request_fields
from ninfer.client.server import ChatServer

__all__ = [
    "Answer",
    "AnswerEnd",
    "AnswerText",
    "ChatEvent",
    "ChatOptions",
    "ChatServer",
    "Conversation",
    "Done",
    "EndDetails",
    "FunctionCall",
    "ModelCard",
    "ReasoningText",
    "TokenUsage",
    "check_chat",
    "given_values",
    "is_address",
    "request_fields",
    "root_of",
    "run_command",
]
