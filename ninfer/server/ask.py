"""Ask: what a client asks of the model, whichever protocol it spoke. Free of any wire format."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ninfer.engine import GenerationOptions
from ninfer.request import Conversation


@dataclass(frozen=True, slots=True)
class RawPrompt:
    """A prompt without turns: a text, or token ids, to be continued as it stands."""

    text: str = ""
    token_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """One request after translation. It has a conversation, or prompts without turns.

    Each prompt gets `count` answers; answer k of prompt p has the number p * count + k.
    `calls_off` shows the model the tools of the conversation and lets it call none.
    `stop_text_shown` and `stop_token_shown` put what ended the answer behind it.
    """

    protocol: str  # chat, completions, responses or messages
    model: str  # as the client named it
    stream: bool
    options: GenerationOptions
    conversation: Conversation | None = None
    prompts: tuple[RawPrompt, ...] = ()
    count: int = 1
    calls_off: bool = False
    stop_text_shown: bool = False
    stop_token_shown: bool = False
    max_tokens: int | None = None  # as the client gave it
    tool_choice: str = "auto"  # for the log
    echo: Mapping[str, Any] | None = None  # what the protocol repeats in its answer

    @property
    def answers(self) -> int:
        """How many answers there will be."""
        return self.count * max(len(self.prompts), 1)
