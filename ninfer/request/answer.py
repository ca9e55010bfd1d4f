"""What a client gets: events of a generation, and the result at its end."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from ninfer.request.prompt import ToolCall


class FinishReason(StrEnum):
    """Why a generation ended."""

    STOP_TOKEN = "stop_token"
    STOP_STRING = "stop_string"
    OUTPUT_LIMIT = "output_limit"
    CONTEXT_CAPACITY = "context_capacity"
    CANCELLED = "cancelled"
    LOOP_GUARD = "loop_guard"
    DEADLINE = "deadline"


Channel = Literal["reasoning", "content"]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely the model found a token, and the ids it found most likely, best first.

    Natural logarithms of the model's own distribution: before bias, penalties, constraints,
    temperature and cuts. At most 0; minus infinity is possible.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of text that is ready to be shown on one channel.

    `logprobs`, if asked for, are those of the tokens that came since the piece before, so all
    pieces together have one for each generated token. A piece that only brings some has no text.
    """

    channel: Channel
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A tool call began. `index` counts the calls of one answer from 0; `id` is unique to it."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """A piece of a call's arguments; all pieces joined are the JSON text of an object."""

    index: int
    fragment: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    """A call is complete. One that the end of the output cut off has no such event."""

    index: int
    call: ToolCall


OutputEvent = TextDelta | ToolCallStart | ToolCallArguments | ToolCallEnd


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request. `cached_tokens` of the prompt were not computed again."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class PrefixMiss:
    """Why the prompt behind the cached tokens was computed: a word of `prefix_match.MissReason`.

    `token` is the index where the nearest earlier conversation differs first, if one does.
    """

    reason: str
    token: int | None = None

    def __str__(self) -> str:
        return self.reason if self.token is None else f"{self.reason}:{self.token}"


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """The last event of a generation. `token_ids` are all generated ids, a stop token included.

    `logprobs` go with them one by one, `prompt_logprobs` with the ids of the prompt, of which the
    first has none; both are empty unless asked for.
    `tool_calls` are the complete ones, in order; a call that was cut off is none.
    `stop_reason` says which stop ended it: the request's own stop id, the stop string, or
    "loop_guard"; None for the model's end of turn and for limits.
    `prefix_miss` is None when no more of the prompt could have been cached.
    """

    finish_reason: FinishReason
    usage: Usage
    token_ids: tuple[int, ...]
    prefill_seconds: float
    decode_seconds: float
    tool_calls: tuple[ToolCall, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob | None, ...] = ()
    stop_reason: int | str | None = None
    prefix_miss: PrefixMiss | None = None


GenerationEvent = OutputEvent | GenerationResult
