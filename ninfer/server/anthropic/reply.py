"""Answers of the Messages protocol: the whole message, and the events of a stream."""

import base64
import hashlib
import uuid
from typing import Any, Final

from ninfer.request import FinishReason, GenerationResult, Usage
from ninfer.server.answer import was_cut
from ninfer.server.anthropic.schema import MessagesBody
from ninfer.server.blocks import Block, Blocks, Closed, Grown, Opened, Step
from ninfer.server.errors import Fault, anthropic_body
from ninfer.server.exchange import Exchange, Numbered
from ninfer.server.sse import event, quoted

_PING: Final = b'event: ping\ndata: {"type":"ping"}\n\n'


class MessageReply:
    """What the objects of one answer have in common, and the whole one."""

    def __init__(self, exchange: Exchange, body: MessagesBody) -> None:
        self.id: Final = f"msg_{uuid.uuid4().hex}"
        self.exchange: Final = exchange
        # A request for no tokens fills the cache of prompts and nothing else.
        self.is_silent: Final = body.max_tokens == 0
        display = body.thinking.display if body.thinking else None
        self.shows_thoughts: Final = display != "omitted"

    def whole(self, blocks: Blocks) -> dict[str, Any]:
        """The message of an answer that is not streamed; a call that was cut off is left out."""
        listed = [] if self.is_silent else blocks.listed
        content = [self._block(block) for block in listed if block.kind != "call" or block.call]
        return {
            **self.head(),
            "content": content or ([] if self.is_silent else [_text("")]),
            **self.ending(blocks.ended),
            "usage": self.usage(),
        }

    def head(self) -> dict[str, Any]:
        """What is known before the first token."""
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.exchange.ask.model,
            "container": None,
        }

    def ending(self, result: GenerationResult) -> dict[str, Any]:
        """Why it ended. A limit wins over calls, and a call over a stop string."""
        reason, stop = "end_turn", None
        if self.is_silent or was_cut(result):
            reason = "max_tokens"
        elif result.tool_calls:
            reason = "tool_use"
        elif result.finish_reason is FinishReason.STOP_STRING:
            reason, stop = "stop_sequence", result.stop_reason
        return {"stop_reason": reason, "stop_sequence": stop, "stop_details": None}

    def usage(self) -> dict[str, Any]:
        """Token counts so far; what was cached is no input here."""
        usage: Usage = self.exchange.usage()
        return {
            "input_tokens": usage.prompt_tokens - usage.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached_tokens,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 0 if self.is_silent else usage.completion_tokens,
            "output_tokens_details": {
                "thinking_tokens": 0 if self.is_silent else usage.reasoning_tokens
            },
            "server_tool_use": None,
            "service_tier": "standard",
            "inference_geo": None,
        }

    def _block(self, block: Block) -> dict[str, Any]:
        if block.kind == "reasoning":
            shown = block.text if self.shows_thoughts else ""
            return {"type": "thinking", "thinking": shown, "signature": signature_of(block.text)}
        if block.kind == "text":
            return _text(block.text)
        assert block.call is not None
        return {**_tool_use(block), "input": block.call.arguments}


def signature_of(thought: str) -> str:
    """What clients send back with a thought; those without one are dropped by some of them."""
    digest = hashlib.blake2b(thought.encode("utf-8", "surrogatepass"), digest_size=24).digest()
    return base64.b64encode(digest).decode()


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "citations": None}


def _tool_use(block: Block) -> dict[str, Any]:
    number = block.id.removeprefix("call_")
    return {
        "type": "tool_use",
        "id": f"toolu_{number}",
        "name": block.name,
        "input": {},
        "caller": {"type": "direct"},
    }


class MessageStream:
    """Events: the message, block by block, its ending."""

    def __init__(self, reply: MessageReply) -> None:
        self._reply = reply
        self._blocks = Blocks()

    def begin(self) -> bytes:
        """The message without content. The prompt's counts are final here."""
        reply = self._reply
        message = {
            **reply.head(),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "stop_details": None,
            "usage": reply.usage(),
        }
        return event({"type": "message_start", "message": message})

    def idle(self) -> bytes:
        """The protocol's own sign of life."""
        return _PING

    def events(self, news: list[Numbered]) -> bytes:
        """Blocks that begin, grow and end."""
        steps = [step for _, item in news for step in self._blocks.feed(item)]
        return b"" if self._reply.is_silent else b"".join(map(self._event, steps))

    def end(self) -> bytes:
        """The reason and the counts; an empty answer has one empty text."""
        pieces = []
        if not self._blocks.listed and not self._reply.is_silent:
            empty = Block("text", 0)
            pieces = [self._event(Opened(empty)), self._event(Closed(empty))]
        ending = self._reply.ending(self._blocks.ended)
        usage = self._reply.usage()
        pieces.append(event({"type": "message_delta", "delta": ending, "usage": usage}))
        return b"".join(pieces) + event({"type": "message_stop"})

    def failed(self, fault: Fault) -> bytes:
        """The error, in the place of what is missing."""
        return event(anthropic_body(fault, self._reply.exchange.request_id))

    def _event(self, step: Step) -> bytes:
        block = step.block
        match step:
            case Opened():
                return self._opened(block)
            case Grown():
                return self._grown(block, step.piece)
            case Closed():
                stop = event({"type": "content_block_stop", "index": block.index})
                if block.kind != "reasoning":
                    return stop
                signature = quoted(signature_of(block.text))
                return _delta(block, "signature_delta", "signature", signature) + stop

    def _opened(self, block: Block) -> bytes:
        match block.kind:
            case "reasoning":
                shown: dict[str, Any] = {"type": "thinking", "thinking": "", "signature": ""}
            case "text":
                shown = {"type": "text", "text": ""}
            case "call":
                shown = _tool_use(block)
        start = {"type": "content_block_start", "index": block.index, "content_block": shown}
        if block.kind != "call":
            return event(start)
        return event(start) + _delta(block, "input_json_delta", "partial_json", '""')

    def _grown(self, block: Block, piece: str) -> bytes:
        match block.kind:
            case "reasoning":
                if not self._reply.shows_thoughts:
                    return b""
                return _delta(block, "thinking_delta", "thinking", quoted(piece))
            case "text":
                return _delta(block, "text_delta", "text", quoted(piece))
            case "call":
                return _delta(block, "input_json_delta", "partial_json", quoted(piece))


def _delta(block: Block, kind: str, member: str, shown: str) -> bytes:
    """A piece of a block; `shown` is a JSON string. Put together by hand: there are many."""
    return (
        "event: content_block_delta\n"
        f'data: {{"type":"content_block_delta","index":{block.index},'
        f'"delta":{{"type":"{kind}","{member}":{shown}}}}}\n\n'
    ).encode()
