"""Chunks of a streamed chat completion to events of an answer."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ninfer.client.events import (
    AnswerEnd,
    AnswerText,
    ChatEvent,
    EndDetails,
    FunctionCall,
    ReasoningText,
    TokenUsage,
)
from ninfer.errors import ServerError
from ninfer.json_text import parse_json


@dataclass(slots=True)
class _Draft:
    """A call whose arguments are still coming."""

    id: str = ""
    name: str = ""
    arguments: str = ""


class ChunkReader:
    """Reads one answer: text at once, calls when they are complete, the end last.

    Deltas may leave out what the protocol lets them: index, id, type. Raises ServerError, naming
    `where`, for an error event, for data that is no chunk, and for a stream that stops before the
    answer has ended: half an answer must not pass for a whole one.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._drafts: dict[int, _Draft] = {}
        self._reason: str | None = None
        self._usage: TokenUsage | None = None
        self._details = EndDetails()

    def read(self, data: Iterable[str]) -> Iterator[ChatEvent]:
        """The events of the data of one stream."""
        for text in data:
            if text.strip() == "[DONE]":
                break
            chunk = parse_json(text, f"{self._where}: a chunk of the answer", ServerError)
            if not isinstance(chunk, Mapping):
                raise ServerError(f"{self._where}: a chunk of the answer is no object")
            yield from self._chunk(chunk)
        if self._reason is None:
            raise ServerError(
                f"{self._where}: the connection ended before the answer did; ask again"
            )
        yield from self._calls()
        yield AnswerEnd(self._reason, self._usage, self._details)

    def _chunk(self, chunk: Mapping[str, Any]) -> Iterator[ChatEvent]:
        if chunk.get("error") is not None:
            raise ServerError(f"{self._where}: {error_message(chunk) or 'the answer failed'}")
        usage = chunk.get("usage")
        if isinstance(usage, Mapping):
            self._usage = _usage(usage)
        timings = chunk.get("timings")
        if isinstance(timings, Mapping):
            self._details = _timed(self._details, timings)
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else {}
        if not isinstance(choice, Mapping):
            return
        delta = choice.get("delta")
        if isinstance(delta, Mapping):
            yield from self._delta(delta)
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            self._reason = reason
            stop = choice.get("stop_reason")
            if isinstance(stop, str | int) and not isinstance(stop, bool):
                self._details = replace(self._details, stop=stop)
        ids = choice.get("token_ids")
        if isinstance(ids, list) and all(type(item) is int for item in ids):
            # Some servers send those of each chunk, some all of them with the last.
            self._details = replace(self._details, token_ids=(*self._details.token_ids, *ids))

    def _delta(self, delta: Mapping[str, Any]) -> Iterator[ChatEvent]:
        # Servers send the thinking under one of these names, or the same text under both.
        names = ("reasoning_content", "reasoning")
        thought = next((delta[n] for n in names if isinstance(delta.get(n), str)), "")
        if thought:
            yield ReasoningText(thought)
        content = delta.get("content")
        if isinstance(content, str) and content:
            yield AnswerText(content)
        calls = delta.get("tool_calls")
        for number, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, Mapping):
                self._call(call, number)

    def _call(self, call: Mapping[str, Any], number: int) -> None:
        index = call.get("index")
        draft = self._drafts.setdefault(index if isinstance(index, int) else number, _Draft())
        function = call.get("function")
        function = function if isinstance(function, Mapping) else {}
        draft.id = _text(call.get("id")) or draft.id
        draft.name = _text(function.get("name")) or draft.name
        draft.arguments += _text(function.get("arguments"))

    def _calls(self) -> Iterator[FunctionCall]:
        for index, draft in sorted(self._drafts.items()):
            yield FunctionCall(draft.id or f"call_{index}", draft.name, draft.arguments)


def error_message(body: object) -> str | None:
    """The message of an error body, of OpenAI's or Anthropic's shape or with the text alone."""
    if not isinstance(body, Mapping):
        return None
    error = body.get("error")
    message = error.get("message") if isinstance(error, Mapping) else error
    return message if isinstance(message, str) and message else None


def _usage(body: Mapping[str, Any]) -> TokenUsage:
    return TokenUsage(
        _count(body, "prompt_tokens"),
        _count(body, "completion_tokens"),
        _count(body.get("prompt_tokens_details"), "cached_tokens"),
        _count(body.get("completion_tokens_details"), "reasoning_tokens"),
    )


def _timed(details: EndDetails, timings: Mapping[str, Any]) -> EndDetails:
    """Times and drafts in llama.cpp's words."""
    found = {
        name: value
        for name in ("prompt_ms", "predicted_ms", "draft_n", "draft_n_accepted")
        if isinstance(value := timings.get(name), int | float) and not isinstance(value, bool)
    }
    prefill, decode = found.get("prompt_ms"), found.get("predicted_ms")
    return replace(
        details,
        prefill_seconds=None if prefill is None else prefill / 1000,
        decode_seconds=None if decode is None else decode / 1000,
        drafted=int(found["draft_n"]) if "draft_n" in found else None,
        accepted=int(found["draft_n_accepted"]) if "draft_n_accepted" in found else None,
    )


def _count(body: object, name: str) -> int:
    value = body.get(name) if isinstance(body, Mapping) else None
    return value if isinstance(value, int) else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
