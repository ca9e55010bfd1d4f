"""Exceptions to HTTP: status, word and body, in the shape of the protocol that was spoken."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ninfer.errors import (
    CapacityError,
    ConstraintError,
    ContextError,
    GrammarBackendError,
    PromptError,
    QueueTimeoutError,
    RequestError,
    UnavailableError,
    UsageError,
)

OPENAI: Final = "openai"
ANTHROPIC: Final = "anthropic"

_RETRY_SECONDS: Final = 2
# The same request would fail again; clients would send it two to thirty times.
_NO_RETRY: Final = {"x-should-retry": "false"}
_SHOWN: Final = 80
_LONGEST: Final = 1000
# A place in the request at the beginning of a message, such as messages[0].content[1].type.
_PLACE: Final = re.compile(r"(?:messages|tools|prompt|input|system)(?:\[\d+\]|\.\w+)*")
_FLAG: Final = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
_MEMBERS: Final = {"max_new": "max_tokens"}
_ANTHROPIC_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}
_OPENAI_TYPES: Final = {403: "permission_error", 429: "rate_limit_error"}


class Refusal(RequestError):
    """What the server itself finds wrong with a request: status, word, and the member at fault."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        code: str = "invalid_request",
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.headers = dict(headers or {})


def wrong(place: str, value: object, advice: str) -> Refusal:
    """What to raise for a member of a request: its place, its value, and what to do."""
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."
    code = "missing_required_parameter" if value is None else "unsupported_value"
    return Refusal(f"{place} is {shown}; {advice}", code=code, param=place)


@dataclass(frozen=True, slots=True)
class Fault:
    """An error as a client will see it, before it has the shape of a protocol.

    `counts` are the prompt's tokens and the most there may be, when that is what is wrong.
    """

    status: int
    code: str
    message: str
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    counts: tuple[int, int] | None = None


def fault_of(error: BaseException) -> Fault:
    """What a client is told of an error; of our own defects nothing but that there is one."""
    text = " ".join(str(error).split())[:_LONGEST]
    again = {"retry-after": str(_RETRY_SECONDS)}
    match error:
        case Refusal():
            return Fault(error.status, error.code, text, error.param, error.headers)
        case ContextError():
            counts = (error.prompt_tokens, error.limit)
            return Fault(400, "context_length_exceeded", text, "messages", counts=counts)
        case ConstraintError():
            member = "tools" if text.startswith("tool ") else "response_format"
            return Fault(400, error.code, text, member)
        case CapacityError():
            return Fault(429, "server_overloaded", text, headers=again)
        case QueueTimeoutError():
            return Fault(503, "request_queue_timeout", text, headers=again)
        case PromptError():
            place = _PLACE.match(text)
            return Fault(400, "invalid_prompt", text, place.group() if place else "messages")
        case UnavailableError():
            return Fault(503, "unavailable", text, headers=again)
        case UsageError() | RequestError():
            flag = _FLAG.search(text)
            named = _FLAG.sub(lambda found: _member(found.group(1)), text)
            return Fault(400, "unsupported_value", named, _member(flag.group(1)) if flag else None)
        case GrammarBackendError():
            text = "the output constraint could not be enforced"
            return Fault(500, "grammar_backend_error", text, headers=_NO_RETRY)
    text = "the server failed on this request; its log tells more"
    return Fault(500, "internal_error", text, headers=_NO_RETRY)


def is_defect(status: int) -> bool:
    """Whether a status tells of a failure of ours, rather than of load or a wrong request."""
    return status >= 500 and status != 503


def _member(flag: str) -> str:
    name = flag.replace("-", "_")
    return _MEMBERS.get(name, name)


def openai_body(fault: Fault) -> dict[str, Any]:
    """The error object of the OpenAI protocols."""
    kind = "server_error" if fault.status >= 500 else "invalid_request_error"
    return {
        "error": {
            "message": openai_message(fault),
            "type": _OPENAI_TYPES.get(fault.status, kind),
            "param": fault.param,
            "code": fault.code,
        }
    }


def openai_message(fault: Fault) -> str:
    """The message of a fault; clients find a prompt that is too long by these very words.

    Some look for the code there, since newer versions of the official library show nothing else.
    """
    if fault.counts is None:
        return fault.message
    tokens, limit = fault.counts
    return (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted "
        f"in {tokens} tokens. Please reduce the length of the messages. ({fault.code})"
    )


def anthropic_body(fault: Fault, request_id: str) -> dict[str, Any]:
    """The error object of the Anthropic protocol."""
    message = fault.message
    if fault.counts is not None:
        tokens, limit = fault.counts
        message = f"prompt is too long: {tokens} tokens > {limit} maximum"
    kind = _ANTHROPIC_TYPES.get(anthropic_status(fault), "api_error")
    return {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": request_id,
    }


def anthropic_status(fault: Fault) -> int:
    """The status of a fault in that protocol, which has one of its own for a full queue."""
    return 529 if fault.code == "server_overloaded" else fault.status


def protocol_of(path: str) -> str:
    """Whose shape the errors of a path have."""
    return ANTHROPIC if path.removeprefix("/v1").startswith("/messages") else OPENAI


def error_body(fault: Fault, path: str, request_id: str) -> tuple[int, bytes]:
    """Status and body of the answer to a request of `path`."""
    if protocol_of(path) == ANTHROPIC:
        return anthropic_status(fault), dump(anthropic_body(fault, request_id))
    return fault.status, dump(openai_body(fault))


def dump(value: Any) -> bytes:
    """Compact JSON. Half a surrogate pair, which a client may have sent, becomes its escape."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
