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

    `runs` say which of the tokens stand for which rows of `media`, in order.
    """

    text: str
    token_ids: tuple[int, ...]
    starts_in_reasoning: bool
    media: tuple[Media, ...] = ()
    runs: tuple[MediaRun, ...] = ()


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is drawn. Temperature 0 is greedy: best logit, lowest id on ties.

    `top_k` 0 and `top_p` 1 and `min_p` 0 switch that cut off. Penalties count generated tokens
    only. The order of the cuts and their formulas stand in the contract of `ops.candidates`.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
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


class FinishReason(StrEnum):
    """Why a generation ended."""

    STOP_TOKEN = "stop_token"
    STOP_STRING = "stop_string"
    OUTPUT_LIMIT = "output_limit"
    CONTEXT_CAPACITY = "context_capacity"
    CANCELLED = "cancelled"


Channel = Literal["reasoning", "content"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of text that is ready to be shown on one channel."""

    channel: Channel
    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request. `cached_tokens` of the prompt were not computed again."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class PrefixMiss:
    """Why the prompt behind the cached tokens was computed, as a word that programs may compare.

    `token` is the index where the nearest earlier conversation differs first, if one does. The
    words are those of `runtime.prefix_match.MissReason`.
    """

    reason: str
    token: int | None = None

    def __str__(self) -> str:
        return self.reason if self.token is None else f"{self.reason}:{self.token}"


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """The last event of a generation. `token_ids` are all generated ids, a stop token included.

    `prefix_miss` is None when no more of the prompt could have been cached.
    """

    finish_reason: FinishReason
    usage: Usage
    token_ids: tuple[int, ...]
    prefill_seconds: float
    decode_seconds: float
    prefix_miss: PrefixMiss | None = None


GenerationEvent = TextDelta | GenerationResult
