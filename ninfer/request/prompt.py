"""What a client says: messages, tools and media, and the prompt that is made of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

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
    """Messages and tools of a request. `tools` are the client's objects, unchanged.

    `begun` is how the answer begins, if the client has written that itself, and `begun_thought` how
    its thought does; a thought before `begun` is whole.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    template: TemplateOptions = field(default_factory=TemplateOptions)
    begun: str = ""
    begun_thought: str = ""


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
    `turn_key` stands for all before the turn to be written (see `Recall`); empty if not asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    starts_in_reasoning: bool
    media: tuple[Media, ...] = ()
    runs: tuple[MediaRun, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    turn_key: bytes = b""
