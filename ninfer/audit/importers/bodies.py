"""Bodies of answers: OpenAI chat and text completions, with what llama.cpp adds, and its own.

Lines of OpenAI batch output, which hold such a body, are read as well.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ninfer.audit.importers.fields import inner, listed, number, seconds, whole, word
from ninfer.audit.record import Drafts, Origin, StoredResponse, Timings, TokenCounts


def is_body(values: Any) -> bool:
    """Whether this is an answer of a server, or a line of a batch that holds one."""
    if not isinstance(values, Mapping):
        return False
    if isinstance(values.get("response"), Mapping):
        return True
    return bool(listed(values, "choices")) or is_llama_cpp(values)


def is_llama_cpp(values: Mapping[str, Any]) -> bool:
    """Whether this is a body of llama.cpp's own `/completion`."""
    known = ("stop_type", "tokens_predicted", "stopped_eos", "generation_settings")
    return isinstance(values.get("content"), str) and any(name in values for name in known)


def body_responses(values: Mapping[str, Any], fixture: str, case: str) -> Iterator[StoredResponse]:
    """The answers of one body."""
    if isinstance(values.get("response"), Mapping):  # a line of a batch
        body = inner(values, "response", "body")
        error = inner(values, "error") or inner(body, "error")
        case = word(values, "custom_id", "id") or case
        if error or not body:
            yield StoredResponse(
                fixture, "", "error", case=case, error=word(error, "message") or "no body"
            )
        else:
            yield from body_responses(body, fixture, case)
    elif is_llama_cpp(values):
        yield _llama_cpp(values, fixture, case)
    else:
        choices = listed(values, "choices")
        for number_, choice in enumerate(choices):
            name = case if len(choices) == 1 else f"{case}.{number_}"
            yield _choice(values, choice, fixture, name)


def _choice(body: Mapping[str, Any], choice: Any, fixture: str, case: str) -> StoredResponse:
    message = inner(choice, "message")
    usage = inner(body, "usage")
    stop = choice.get("stop_reason") if isinstance(choice, Mapping) else None
    return StoredResponse(
        fixture=fixture,
        case=case,
        text=word(message, "content") or word(choice, "text"),
        reasoning=word(message, "reasoning_content", "reasoning"),
        tool_calls=tuple(c for c in listed(message, "tool_calls") if isinstance(c, Mapping)),
        finish_reason=word(choice, "finish_reason"),
        stop=stop if isinstance(stop, str | int) and not isinstance(stop, bool) else None,
        usage=TokenCounts(
            whole(usage, "prompt_tokens"),
            whole(usage, "completion_tokens"),
            whole(inner(usage, "completion_tokens_details"), "reasoning_tokens"),
            whole(inner(usage, "prompt_tokens_details"), "cached_tokens"),
        ),
        timings=_timings(body),
        drafts=_drafts(body),
        origin=Origin(model=word(body, "model"), software=word(body, "system_fingerprint")),
    )


def _llama_cpp(body: Mapping[str, Any], fixture: str, case: str) -> StoredResponse:
    settings = inner(body, "generation_settings")
    reason = word(body, "stop_type")
    if not reason:  # older servers say it by flags
        flags = (("stopped_eos", "eos"), ("stopped_word", "word"), ("stopped_limit", "limit"))
        reason = next((name for flag, name in flags if body.get(flag) is True), "")
    request = {"n_predict": n} if (n := whole(settings, "n_predict")) and n > 0 else {}
    ids = [i for i in listed(body, "tokens") if type(i) is int]
    return StoredResponse(
        fixture=fixture,
        case=case,
        seed=whole(settings, "seed"),
        text=word(body, "content"),
        finish_reason=reason,
        stop=word(body, "stopping_word") or None,
        request=request,
        token_ids=tuple(ids) or None,
        usage=TokenCounts(
            whole(body, "tokens_evaluated"),
            whole(body, "tokens_predicted"),
            cached=whole(inner(body, "timings"), "cache_n"),
        ),
        timings=_timings(body),
        drafts=_drafts(body),
        origin=Origin(model=word(body, "model"), software="llama.cpp"),
    )


def _timings(body: Mapping[str, Any]) -> Timings:
    times = inner(body, "timings")
    prefill, decode = seconds(times, "prompt_ms"), seconds(times, "predicted_ms")
    known = prefill is not None and decode is not None
    total = prefill + decode if known and prefill is not None and decode is not None else None
    return Timings(total=total, prefill=prefill, decode=decode)


def _drafts(body: Mapping[str, Any]) -> Drafts | None:
    times = inner(body, "timings")
    drafted = number(times, "draft_n")
    if not drafted:
        return None
    return Drafts(drafted=int(drafted), accepted=whole(times, "draft_n_accepted") or 0)
