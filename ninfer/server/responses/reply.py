"""Objects of the Responses protocol: the response, and the items of its output."""

import time
import uuid
from typing import Any, Final

from ninfer.engine import TextSide
from ninfer.request import SamplingParams, TokenLogprob, Usage
from ninfer.server.answer import was_cut
from ninfer.server.ask import Ask
from ninfer.server.blocks import Block, Blocks
from ninfer.server.openai.parts import logprobs_of
from ninfer.server.responses.items import sealed
from ninfer.server.responses.schema import ResponsesBody
from ninfer.server.responses.tools import Offered, Tools, echo_of

IN_PROGRESS: Final = "in_progress"
_SEALED: Final = "reasoning.encrypted_content"
_PREFIXES: Final = {"reasoning": "rs", "text": "msg", "call": "fc"}


class ResponseReply:
    """What all objects of one response have in common."""

    def __init__(
        self, ask: Ask, body: ResponsesBody, tools: Tools, drawn: SamplingParams, text: TextSide
    ) -> None:
        """`drawn` is how tokens are drawn in effect."""
        self.id: Final = f"resp_{uuid.uuid4().hex}"
        self.created: Final = int(time.time())
        self._ask = ask
        self._body = body
        self._tools = tools
        self._drawn = drawn
        self._text = text
        self._ids: dict[int, str] = {}

    def response(self, status: str, **members: Any) -> dict[str, Any]:
        """The response in a state; `members` are output, usage and what else it brings."""
        body, drawn, extra = self._body, self._drawn, self._body.model_extra or {}
        reasoning = body.reasoning
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": None,
            "status": status,
            "incomplete_details": None,
            "model": self._ask.model,
            "previous_response_id": body.previous_response_id,
            "instructions": body.instructions,
            "output": [],
            "error": None,
            "tools": echo_of(body.tools),
            "tool_choice": "auto" if body.tool_choice is None else body.tool_choice,
            "truncation": body.truncation,
            "parallel_tool_calls": body.parallel_tool_calls,
            "text": {
                "format": (body.text and body.text.format) or {"type": "text"},
                **({"verbosity": body.text.verbosity} if body.text and body.text.verbosity else {}),
            },
            "temperature": drawn.temperature,
            "top_p": drawn.top_p,
            "presence_penalty": drawn.presence_penalty,
            "frequency_penalty": drawn.frequency_penalty,
            "top_logprobs": body.top_logprobs or 0,
            "reasoning": {
                "effort": reasoning.effort if reasoning else None,
                "summary": reasoning.summary if reasoning else None,
            },
            "usage": None,
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": extra.get("max_tool_calls"),
            "store": body.store,
            "background": False,
            "service_tier": "default",
            "metadata": body.metadata or {},
            "safety_identifier": extra.get("safety_identifier"),
            "prompt_cache_key": extra.get("prompt_cache_key"),
            "user": extra.get("user"),
            **members,
        }

    def ended(self, blocks: Blocks, usage: Usage) -> dict[str, Any]:
        """The response at its end. A call that was cut off is left out: clients would run it."""
        cut = was_cut(blocks.ended)
        last = len(blocks.listed) - 1
        output = [
            self.item(block, "incomplete" if cut and block.index == last else "completed")
            for block in blocks.listed
            if block.kind != "call" or block.call
        ]
        return self.response(
            "incomplete" if cut else "completed",
            output=output,
            usage=usage_of(usage),
            completed_at=None if cut else int(time.time()),
            incomplete_details={"reason": "max_output_tokens"} if cut else None,
        )

    def item(self, block: Block, status: str) -> dict[str, Any]:
        """An item of the output; one in progress is empty."""
        begun = status == IN_PROGRESS
        match block.kind:
            case "reasoning":
                content = [] if begun else [self.part(block)]
                is_sealed = content and self._body.includes(_SEALED)
                about: dict[str, Any] = {
                    "summary": [],
                    "content": content,
                    "encrypted_content": sealed(block.text) if is_sealed else None,
                }
                return {"type": "reasoning", "id": self.id_of(block), **about, "status": status}
            case "text":
                content = [] if begun else [self.part(block)]
                about = {"role": "assistant", "status": status, "content": content}
                return {"type": "message", "id": self.id_of(block), **about}
            case "call":
                return self._call(block, status)

    def part(self, block: Block, *, begun: bool = False) -> dict[str, Any]:
        """The one part of a thought or message; one that has just begun is empty."""
        text = "" if begun else block.text
        if block.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        logprobs = [] if begun else self.logprobs(block.logprobs)
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    def logprobs(self, entries: list[TokenLogprob]) -> list[dict[str, Any]]:
        """The log-probabilities of a text; none are there unless they were asked for."""
        found = logprobs_of(entries, self._text, self._body.top_logprobs or 0)["content"]
        assert isinstance(found, list)
        return found

    def offered(self, block: Block) -> Offered:
        """The tool of a call; the model may name one that is not there."""
        return self._tools.offered.get(block.name) or Offered(block.name)

    def id_of(self, block: Block) -> str:
        """The id of a block's item."""
        if block.index not in self._ids:
            custom = block.kind == "call" and self.offered(block).is_custom
            prefix = "ctc" if custom else _PREFIXES[block.kind]
            self._ids[block.index] = f"{prefix}_{uuid.uuid4().hex}"
        return self._ids[block.index]

    def _call(self, block: Block, status: str) -> dict[str, Any]:
        tool = self.offered(block)
        member = "input" if tool.is_custom else "arguments"
        item = {
            "type": "custom_tool_call" if tool.is_custom else "function_call",
            "id": self.id_of(block),
            "call_id": block.id,
            "name": tool.name,
            member: "" if status == IN_PROGRESS else self.said(block),
            "status": status,
        }
        return item if tool.namespace is None else {**item, "namespace": tool.namespace}

    def said(self, block: Block) -> str:
        """The arguments of a whole call, or the text for a tool that takes text."""
        assert block.call is not None
        if not self.offered(block).is_custom:
            return block.text
        given = block.call.arguments.get("input")
        return given if isinstance(given, str) else block.text


def usage_of(usage: Usage) -> dict[str, Any]:
    """Token counts."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
