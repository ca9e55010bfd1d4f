"""Wire-free nouns of a request: what a client asked, before and after text becomes tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Role = Literal["system", "user", "assistant", "tool"]
PartKind = Literal["text", "image", "video"]
MediaKind = Literal["image", "video"]


@dataclass(frozen=True, slots=True)
class ContentPart:
    """One piece of a message. `text` for text parts; `source` (path, URL or data URI) for media.

    `place` says where the client's request has it, for error messages.
    """

    kind: PartKind
    text: str = ""
    source: str = ""
    place: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that an assistant turn made. `arguments` is an object, never JSON text."""

    name: str
    arguments: Mapping[str, Any]
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. `reasoning` is None when the client gave none, which differs from ""."""

    role: Role
    content: tuple[ContentPart, ...] = ()
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class TemplateOptions:
    """What a request may ask of the chat template; None means "not given"."""

    enable_thinking: bool = True
    preserve_thinking: bool | None = None
    reasoning_effort: str | None = None
    add_vision_id: bool = False
    add_generation_prompt: bool = True


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages and tools of a request. `tools` are the client's objects, unchanged."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    template: TemplateOptions = field(default_factory=TemplateOptions)


@dataclass(frozen=True, slots=True)
class Media:
    """An image or video, ready for the vision tower.

    `patches` [T * H * W, row] are pixel values in merge-block order; `grid` is (T, H, W) in
    patches. `timestamps` are the seconds of a video's T time steps. Equal digests mean equal kind,
    grid and pixels, so a digest may stand for the media in a cache key.
    """

    kind: MediaKind
    grid: tuple[int, int, int]
    patches: "NDArray[np.uint8]" = field(compare=False, repr=False)
    digest: bytes
    timestamps: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class MediaRun:
    """Placeholder tokens of an image, or of one time step of a video, one after another.

    `grid` is (t, h, w) in merged blocks. The tokens stand for the rows `first_row` to
    `first_row + length` of what the vision tower makes of media number `media` of the prompt.
    """

    start: int
    grid: tuple[int, int, int]
    media: int
    first_row: int

    @property
    def length(self) -> int:
        """Number of placeholder tokens."""
        return self.grid[0] * self.grid[1] * self.grid[2]


@dataclass(frozen=True, slots=True)
class PreparedPrompt:
    """A rendered prompt. `starts_in_reasoning` is read off the rendered text, not off a flag.

    `runs` say which of the tokens stand for which rows of `media`, in order. `tools` are those of
    the conversation, whose calls the answer may hold; without any, call tags are plain text.
    """

    text: str
    token_ids: tuple[int, ...]
    starts_in_reasoning: bool
    media: tuple[Media, ...] = ()
    runs: tuple[MediaRun, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class LogitBias:
    """What is added to the logit of one id, before penalties and cuts."""

    token_id: int
    value: float

    @classmethod
    def parse(cls, text: str) -> "LogitBias":
        """Read ID=X, as the command line has it. Raises ValueError for anything else."""
        token_id, _, value = text.partition("=")
        return cls(int(token_id), float(value))


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is drawn. Temperature 0 is greedy: best logit, lowest id on ties.

    A logit is biased first, also for a greedy draw, which ignores everything else here. Penalties
    follow: they count generated tokens only, and repetition 1 and the others 0 switch them off.
    `top_k` 0 and `top_p` 1 and `min_p` 0 switch that cut off. Formulas and the order of the cuts
    stand in the contracts of `ops.penalise` and `ops.candidates`.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[LogitBias, ...] = ()  # of ids that are all different
    seed: int = 0


@dataclass(frozen=True, slots=True)
class StopRules:
    """What ends a generation besides the model's own end-of-turn ids and the limits."""

    token_ids: tuple[int, ...] = ()
    content: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JsonObjectSpec:
    """The answer is any one JSON object."""


@dataclass(frozen=True, slots=True)
class JsonSchemaSpec:
    """The answer is JSON that `schema` (JSON Schema 2020-12) describes."""

    schema: Mapping[str, Any] | bool


@dataclass(frozen=True, slots=True)
class RegexSpec:
    """The answer as a whole matches `pattern`: Rust regex syntax, no look-around."""

    pattern: str


@dataclass(frozen=True, slots=True)
class ChoiceSpec:
    """The answer is one of `choices`."""

    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """The answer follows a context-free grammar: Lark as llguidance reads it, or GBNF."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolRule:
    """A tool that may be called; `parameters` is the schema of its arguments, None if it has none.

    `strict` arguments always satisfy the schema; others have the declared names and JSON forms.
    """

    name: str
    parameters: Mapping[str, Any] | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ToolCallSpec:
    """Calls are well-formed calls of `tools`, in the XML form of the Qwen templates.

    `required`: the answer is one call or more and nothing else; otherwise text with any number of
    calls in it or, with `answer`, either calls or that answer. Without `parallel` at most one call.
    """

    tools: tuple[ToolRule, ...]
    required: bool = False
    parallel: bool = True
    answer: JsonObjectSpec | JsonSchemaSpec | None = None


ConstraintSpec = (
    JsonObjectSpec | JsonSchemaSpec | RegexSpec | ChoiceSpec | GrammarSpec | ToolCallSpec
)


class TokenConstraint(Protocol):
    """Which token ids may come next in one sequence, as a state that tokens move.

    Its masks depend on the tokens so far and on nothing else. Not for two threads at once.
    """

    @property
    def is_finished(self) -> bool:
        """Whether a stop id was taken: nothing may follow."""

    @property
    def may_stop(self) -> bool:
        """Whether a stop id may come next."""

    def allowed(self) -> bytes:
        """The ids that may come next: id i is bit i % 32 of little-endian 32-bit word i // 32.

        ceil(V / 32) words for the V addressable ids. Not to be asked once `is_finished`. Raises
        GenerationError if no id may follow, GrammarBackendError if the grammar library gives up.
        """

    def advance(self, token_id: int) -> bool:
        """Take the next token. False, and nothing changes, if it may not come next."""

    def rollback(self, count: int) -> None:
        """Forget the last `count` tokens taken."""

    def allowed_ahead(self, drafts: Sequence[int]) -> list[bytes]:
        """Masks for the next position and behind each draft, until a draft that may not stand.

        At most len(drafts) + 1; none behind a stop id. The state stays as it is.
        """

    def fork(self) -> "TokenConstraint":
        """An independent copy."""


class TokenForcer(Protocol):
    """Tokens that must come next in one sequence at certain places, whatever would be drawn.

    A state that the sequence's tokens move; what it forces depends on them and on nothing else.
    """

    @property
    def is_done(self) -> bool:
        """Whether nothing will be forced any more."""

    def forced(self) -> int | None:
        """The id that must come next; None leaves the place free."""

    def advance(self, token_id: int) -> None:
        """Take the next token: the forced one, or any where the place is free."""


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
