"""Answers of Chat Completions: the whole object, and the chunks of a stream."""

import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

from ninfer.engine import TextSide
from ninfer.request import (
    GenerationEvent,
    GenerationResult,
    TextDelta,
    TokenLogprob,
    ToolCallArguments,
    ToolCallStart,
)
from ninfer.server.answer import Answer
from ninfer.server.errors import Fault, openai_body
from ninfer.server.exchange import Exchange, Numbered
from ninfer.server.openai.parts import (
    call_of,
    finish_reason,
    logprobs_of,
    timings_of,
    usage_of,
)
from ninfer.server.openai.schema import ChatBody
from ninfer.server.sse import DONE, KEEP_ALIVE, data, line_of, quoted


class ChatReply:
    """What all objects of one answer have in common, and the whole one."""

    def __init__(self, exchange: Exchange, body: ChatBody, text: TextSide) -> None:
        self.id: Final = f"chatcmpl-{uuid.uuid4().hex}"
        self.created: Final = int(time.time())
        self.exchange: Final = exchange
        self.body: Final = body
        self.text: Final = text
        self.shows_reasoning: Final = body.shows_reasoning

    def whole(self, answers: list[Answer]) -> dict[str, Any]:
        """The object of an answer that is not streamed."""
        results = [answer.ended for answer in answers]
        reply: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.exchange.ask.model,
            "system_fingerprint": None,
            "service_tier": None,
            "choices": [self._choice(index, answer) for index, answer in enumerate(answers)],
            "usage": usage_of(self.exchange.usage()),
        }
        if len(results) == 1:
            reply["timings"] = timings_of(results[0])
        if self.body.return_token_ids:
            reply["prompt_token_ids"] = list(self.exchange.prompts[0].token_ids)
        return reply

    def _choice(self, index: int, answer: Answer) -> dict[str, Any]:
        result = answer.ended
        content, reasoning = "".join(answer.content), "".join(answer.reasoning)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content or (None if result.tool_calls or reasoning else ""),
            "refusal": None,
            "annotations": [],
        }
        if reasoning and self.shows_reasoning:
            message |= {"reasoning_content": reasoning, "reasoning": reasoning}
        if result.tool_calls:
            message["tool_calls"] = [call_of(call) for call in result.tool_calls]
        choice = {
            "index": index,
            "message": message,
            "logprobs": self.logprobs(answer.logprobs),
            "finish_reason": finish_reason(result),
            "stop_reason": result.stop_reason,
        }
        if self.body.return_token_ids:
            choice["token_ids"] = list(result.token_ids)
        return choice

    def logprobs(self, entries: list[TokenLogprob]) -> dict[str, Any] | None:
        """The log-probabilities, if they were asked for."""
        if not self.body.logprobs:
            return None
        return logprobs_of(entries, self.text, self.body.top_logprobs or 0)


@dataclass(slots=True)
class _Open:
    """One choice of a stream so far."""

    begun: bool = False
    logprobs: list[TokenLogprob] = field(default_factory=list)


class ChatStream:
    """Chunks, in the order role, reasoning, content, calls, finish, usage.

    The text of a chunk is put into a frame made beforehand: there are many of them.
    """

    def __init__(self, reply: ChatReply) -> None:
        self._reply = reply
        self._choices = [_Open() for _ in range(reply.exchange.ask.answers)]
        self._completed = 0
        self._head = (
            f'data: {{"id":{quoted(reply.id)},"object":"chat.completion.chunk",'
            f'"created":{reply.created},"model":{quoted(reply.exchange.ask.model)},'
            '"system_fingerprint":null,"choices":['
        )
        self._tail = '],"usage":null}\n\n' if reply.body.wants_usage else "]}\n\n"

    def begin(self) -> bytes:
        """Nothing: the first chunk comes with the first token, which is what it is timed by."""
        return b""

    def idle(self) -> bytes:
        """A comment."""
        return KEEP_ALIVE

    def events(self, news: list[Numbered]) -> bytes:
        """The chunks of these events."""
        if self._reply.body.wants_running_usage:
            self._tail = f'],"usage":{line_of(usage_of(self._reply.exchange.usage()))}}}\n\n'
        return "".join(
            piece for index, event in news for piece in self._event(index, event)
        ).encode()

    def _event(self, index: int, event: GenerationEvent) -> list[str]:
        choice, pieces = self._choices[index], []
        if not choice.begun:
            choice.begun = True
            pieces.append(self._chunk(index, '{"role":"assistant","content":""}'))
            if self._reply.body.return_token_ids:
                pieces[-1] = self._with_prompt_ids(index)
        match event:
            case TextDelta():
                choice.logprobs += event.logprobs
                if event.text or event.logprobs:
                    pieces.append(self._text(index, choice, event))
            case ToolCallStart():
                call = (
                    f'{{"tool_calls":[{{"index":{event.index},"id":{quoted(event.id)},'
                    f'"type":"function","function":{{"name":{quoted(event.name)},'
                    '"arguments":""}}]}'
                )
                pieces.append(self._chunk(index, call))
            case ToolCallArguments():
                call = (
                    f'{{"tool_calls":[{{"index":{event.index},'
                    f'"function":{{"arguments":{quoted(event.fragment)}}}}}]}}'
                )
                pieces.append(self._chunk(index, call))
            case GenerationResult():
                pieces.append(self._finish(index, event))
        return pieces

    def _text(self, index: int, choice: _Open, event: TextDelta) -> str:
        shown = quoted(event.text)
        if event.channel == "content":
            delta = f'{{"content":{shown}}}'
        elif self._reply.shows_reasoning:
            delta = f'{{"reasoning_content":{shown},"reasoning":{shown}}}'
        else:
            delta = "{}"
        if not self._reply.body.logprobs:
            return self._chunk(index, delta) if delta != "{}" else ""
        entries, choice.logprobs = choice.logprobs, []
        logprobs = self._reply.logprobs(entries)
        return self._chunk(index, delta, "null" if logprobs is None else line_of(logprobs))

    def _chunk(self, index: int, delta: str, logprobs: str = "null", finish: str = "null") -> str:
        return (
            f'{self._head}{{"index":{index},"delta":{delta},"logprobs":{logprobs},'
            f'"finish_reason":{finish}}}{self._tail}'
        )

    def _finish(self, index: int, result: GenerationResult) -> str:
        choice: dict[str, Any] = {
            "index": index,
            "delta": {},
            "logprobs": None,
            "finish_reason": finish_reason(result),
            "stop_reason": result.stop_reason,
        }
        if self._reply.body.return_token_ids:
            choice["token_ids"] = list(result.token_ids)
        timings = f',"timings":{line_of(timings_of(result))}'
        # Before the closing brace of the object.
        return f"{self._head}{line_of(choice)}{self._tail[:-3]}{timings}}}\n\n"

    def _with_prompt_ids(self, index: int) -> str:
        ids = list(self._reply.exchange.prompts[0].token_ids)
        chunk = self._chunk(index, '{"role":"assistant","content":""}')
        return f'{chunk[:-3]},"prompt_token_ids":{line_of(ids)}}}\n\n'

    def end(self) -> bytes:
        """The usage, if it was asked for, and the end of the stream."""
        body = self._reply.body
        if not body.wants_usage:
            return DONE
        usage = usage_of(self._reply.exchange.usage())
        return f'{self._head}],"usage":{line_of(usage)}}}\n\n'.encode() + DONE

    def failed(self, fault: Fault) -> bytes:
        """The error, in the place of what is missing."""
        return data(openai_body(fault)) + DONE
