"""Blocks: the events of one answer as thoughts, texts and calls, of which one at a time is open."""

from dataclasses import dataclass, field
from typing import Literal

from ninfer.request import (
    GenerationEvent,
    GenerationResult,
    TextDelta,
    TokenLogprob,
    ToolCall,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from ninfer.server.exchange import Exchange

Kind = Literal["reasoning", "text", "call"]


@dataclass(slots=True)
class Block:
    """One of them. The pieces of a call are those of its arguments; `call` is there when it is
    whole. `logprobs` are those of a text."""

    kind: Kind
    index: int
    id: str = ""
    name: str = ""
    call: ToolCall | None = None
    pieces: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All pieces."""
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class Opened:
    """A block begins."""

    block: Block


@dataclass(frozen=True, slots=True)
class Grown:
    """A piece of the open block."""

    block: Block
    piece: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Closed:
    """The open block ends; `cut` if the answer ended within it."""

    block: Block
    cut: bool = False


Step = Opened | Grown | Closed


class Blocks:
    """Puts one answer together; streams show the steps, other replies the `listed` blocks."""

    def __init__(self) -> None:
        self.listed: list[Block] = []
        self.result: GenerationResult | None = None
        self._open: Block | None = None
        self._waiting: list[TokenLogprob] = []  # of text that is held back

    @property
    def ended(self) -> GenerationResult:
        """The result, once it is there."""
        assert self.result is not None
        return self.result

    def feed(self, event: GenerationEvent) -> list[Step]:
        """What changes with this event."""
        match event:
            case TextDelta():
                return self._text(event)
            case ToolCallStart():
                return [*self._close(), *self._begin("call", event.id, event.name)]
            case ToolCallArguments():
                return self._grow(event.fragment)
            case ToolCallEnd():
                assert self._open is not None
                self._open.call = event.call
                return self._close()
            case GenerationResult():
                self.result = event
                return self._close(cut=True)

    def _text(self, event: TextDelta) -> list[Step]:
        if event.channel == "content":
            self._waiting += event.logprobs
        if not event.text:
            return []
        kind: Kind = "text" if event.channel == "content" else "reasoning"
        steps: list[Step] = []
        if self._open is None or self._open.kind != kind:
            steps = [*self._close(), *self._begin(kind)]
        return [*steps, *self._grow(event.text)]

    def _begin(self, kind: Kind, call_id: str = "", name: str = "") -> list[Step]:
        self._open = Block(kind, len(self.listed), call_id, name)
        self.listed.append(self._open)
        return [Opened(self._open)]

    def _grow(self, piece: str) -> list[Step]:
        assert self._open is not None
        self._open.pieces.append(piece)
        logprobs: tuple[TokenLogprob, ...] = ()
        if self._open.kind == "text":
            logprobs, self._waiting = tuple(self._waiting), []
            self._open.logprobs += logprobs
        return [Grown(self._open, piece, logprobs)]

    def _close(self, *, cut: bool = False) -> list[Step]:
        block, self._open = self._open, None
        return [] if block is None else [Closed(block, cut)]


async def collect_blocks(exchange: Exchange) -> Blocks:
    """The one answer of an exchange, whole. Raises what broke it off."""
    blocks = Blocks()
    with exchange:
        while not exchange.ended:
            for _, event in await exchange.news():
                blocks.feed(event)
    return blocks
