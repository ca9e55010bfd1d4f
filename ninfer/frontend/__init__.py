"""Messages to token ids and token ids to text; knows nothing of tensors."""

from ninfer.frontend.chat_template import ChatTemplate
from ninfer.frontend.frontend import Frontend
from ninfer.frontend.media import MediaLimits, SourceRules
from ninfer.frontend.normalize import normalise, parse_conversation
from ninfer.frontend.output import OutputParser, StopMatch
from ninfer.frontend.tokenizer import Tokenizer

__all__ = [
    "ChatTemplate",
    "Frontend",
    "MediaLimits",
    "OutputParser",
    "SourceRules",
    "StopMatch",
    "Tokenizer",
    "normalise",
    "parse_conversation",
]
