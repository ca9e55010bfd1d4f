"""Pieces of OpenAI answers: finish reasons, usage, calls and log-probabilities."""

import json
import math
from collections.abc import Iterable
from typing import Any, Final

from ninfer.engine import TextSide
from ninfer.request import GenerationResult, TokenLogprob, ToolCall, Usage
from ninfer.server.answer import was_cut

# JSON has no minus infinity.
_LEAST_LOGPROB: Final = -9999.0


def finish_reason(result: GenerationResult) -> str:
    """The word for why an answer ended; a limit wins over the calls that it has."""
    if was_cut(result):
        return "length"
    return "tool_calls" if result.tool_calls else "stop"


def usage_of(usage: Usage) -> dict[str, Any]:
    """Token counts."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
            "audio_tokens": 0,
        },
    }


def timings_of(result: GenerationResult) -> dict[str, Any]:
    """Counts and times in llama.cpp's words, which chat pages show."""
    computed = result.usage.prompt_tokens - result.usage.cached_tokens
    return {
        "cache_n": result.usage.cached_tokens,
        "prompt_n": computed,
        "prompt_ms": result.prefill_seconds * 1e3,
        "predicted_n": result.usage.completion_tokens,
        "predicted_ms": result.decode_seconds * 1e3,
    }


def call_of(call: ToolCall) -> dict[str, Any]:
    """A complete tool call."""
    return {
        "id": call.id,
        "type": "function",
        "function": {
            "name": call.name,
            "arguments": json.dumps(call.arguments, ensure_ascii=False),
        },
    }


def finite(value: float) -> float:
    """A log-probability as JSON can say it."""
    return value if math.isfinite(value) else _LEAST_LOGPROB


def logprobs_of(entries: Iterable[TokenLogprob], text: TextSide, top: int) -> dict[str, Any]:
    """One entry for every generated token, those of thoughts, calls and the end included."""
    return {"content": [_entry(entry, text, top) for entry in entries], "refusal": None}


def _entry(entry: TokenLogprob, text: TextSide, top: int) -> dict[str, Any]:
    best = [_token(token_id, value, text) for token_id, value in entry.top[:top]]
    return {**_token(entry.token_id, entry.logprob, text), "top_logprobs": best}


def _token(token_id: int, value: float, text: TextSide) -> dict[str, Any]:
    raw = text.token_bytes(token_id)
    return {"token": raw.decode(errors="replace"), "logprob": finite(value), "bytes": list(raw)}
