"""Events of a streamed response, numbered from 0."""

from collections.abc import Callable
from typing import Any

from ninfer.server.answer import was_cut
from ninfer.server.blocks import Block, Blocks, Closed, Grown, Opened, Step
from ninfer.server.errors import Fault, openai_message
from ninfer.server.exchange import Exchange, Numbered
from ninfer.server.responses.free_text import FreeText
from ninfer.server.responses.reply import IN_PROGRESS, ResponseReply
from ninfer.server.sse import KEEP_ALIVE, event, line_of, quoted


class ResponseStream:
    """Each item is closed before the next one opens; exactly one event says how all ended."""

    def __init__(
        self,
        reply: ResponseReply,
        exchange: Exchange | None,
        keep: Callable[[dict[str, Any]], None],
    ) -> None:
        """`keep` takes the response at its end. Without an exchange the stream can only fail."""
        self._reply = reply
        self._exchange = exchange
        self._keep = keep
        self._blocks = Blocks()
        self._free = FreeText()
        self._number = 0

    def begin(self) -> bytes:
        """The response, which is under way."""
        response = self._reply.response(IN_PROGRESS)
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def idle(self) -> bytes:
        """A comment."""
        return KEEP_ALIVE

    def events(self, news: list[Numbered]) -> bytes:
        """Items that begin, grow and end."""
        steps = [step for _, item in news for step in self._blocks.feed(item)]
        return b"".join(map(self._step, steps))

    def end(self) -> bytes:
        """The whole response."""
        assert self._exchange is not None
        response = self._reply.ended(self._blocks, self._exchange.usage())
        self._keep(response)
        return self._event(f"response.{response['status']}", response=response)

    def failed(self, fault: Fault) -> bytes:
        """The response with the error; what was in its output is no answer."""
        error = {"code": fault.code, "message": openai_message(fault)}
        return self._event("response.failed", response=self._reply.response("failed", error=error))

    def _step(self, step: Step) -> bytes:
        match step:
            case Opened():
                return self._opened(step.block)
            case Grown():
                return self._grown(step)
            case Closed():
                return self._closed(step)

    def _opened(self, block: Block) -> bytes:
        item = self._reply.item(block, IN_PROGRESS)
        added = self._event("response.output_item.added", output_index=block.index, item=item)
        if block.kind == "call":
            self._free = FreeText()
            return added
        part = self._reply.part(block, begun=True)
        return added + self._event("response.content_part.added", **self._place(block), part=part)

    def _grown(self, step: Grown) -> bytes:
        block, piece = step.block, quoted(step.piece)
        if block.kind == "reasoning":
            return self._delta("response.reasoning_text.delta", block, piece)
        if block.kind == "text":
            entries = list(step.logprobs)
            logprobs = line_of(self._reply.logprobs(entries)) if entries else "[]"
            return self._delta("response.output_text.delta", block, piece, logprobs)
        if not self._reply.offered(block).is_custom:
            return self._delta("response.function_call_arguments.delta", block, piece)
        text = self._free.feed(step.piece)
        if not text:
            return b""
        return self._delta("response.custom_tool_call_input.delta", block, quoted(text))

    def _closed(self, step: Closed) -> bytes:
        block = step.block
        if block.kind == "call":
            # One that was cut off stays open: clients run what is done.
            return b"" if block.call is None else self._call_done(block)
        cut = step.cut and was_cut(self._blocks.ended)
        place, part = self._place(block), self._reply.part(block)
        kind = "reasoning_text" if block.kind == "reasoning" else "output_text"
        more = {} if block.kind == "reasoning" else {"logprobs": part["logprobs"]}
        return (
            self._event(f"response.{kind}.done", **place, text=block.text, **more)
            + self._event("response.content_part.done", **place, part=part)
            + self._item_done(block, "incomplete" if cut else "completed")
        )

    def _call_done(self, block: Block) -> bytes:
        tool, said = self._reply.offered(block), self._reply.said(block)
        place = {"item_id": self._reply.id_of(block), "output_index": block.index}
        if not tool.is_custom:
            done = self._event(
                "response.function_call_arguments.done", **place, arguments=said, name=tool.name
            )
            return done + self._item_done(block, "completed")
        rest = said.removeprefix(self._free.sent)
        last = b""
        if rest:
            last = self._delta("response.custom_tool_call_input.delta", block, quoted(rest))
        done = self._event("response.custom_tool_call_input.done", **place, input=said)
        return last + done + self._item_done(block, "completed")

    def _item_done(self, block: Block, status: str) -> bytes:
        item = self._reply.item(block, status)
        return self._event("response.output_item.done", output_index=block.index, item=item)

    def _place(self, block: Block) -> dict[str, Any]:
        return {
            "item_id": self._reply.id_of(block),
            "output_index": block.index,
            "content_index": 0,
        }

    def _event(self, kind: str, **members: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return event({"type": kind, "sequence_number": number, **members})

    def _delta(self, kind: str, block: Block, shown: str, logprobs: str = "") -> bytes:
        """A piece of an item; `shown` and `logprobs` are JSON. There are many of them."""
        number, self._number = self._number, self._number + 1
        content = "" if block.kind == "call" else '"content_index":0,'
        more = f',"logprobs":{logprobs}' if logprobs else ""
        return (
            f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":{number},'
            f'"item_id":"{self._reply.id_of(block)}","output_index":{block.index},'
            f'{content}"delta":{shown}{more}}}\n\n'
        ).encode()
