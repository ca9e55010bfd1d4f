"""Journal: how each exchange went, told to the metrics, the request log and the log."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from ninfer.audit.live import LiveVerdict
from ninfer.engine import GenerationOptions
from ninfer.errors import ConstraintError, NInferError
from ninfer.log import get_logger
from ninfer.request import (
    ChoiceSpec,
    ConstraintSpec,
    FinishReason,
    GenerationResult,
    GrammarSpec,
    JsonObjectSpec,
    JsonSchemaSpec,
    RegexSpec,
    SamplingParams,
    ToolCallSpec,
    Usage,
)
from ninfer.server.ask import Ask
from ninfer.server.errors import fault_of, is_defect
from ninfer.server.exchange import Exchange
from ninfer.server.metrics import Metrics
from ninfer.server.request_log import RequestLog

_log = get_logger(__name__)
_SAMPLING: Final = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "seed",
)
_REASONS: Final = {
    FinishReason.OUTPUT_LIMIT: "length",
    FinishReason.CONTEXT_CAPACITY: "length",
    FinishReason.DEADLINE: "length",
}
_FORMS: Final[dict[type[ConstraintSpec], str]] = {
    JsonObjectSpec: "json_object",
    JsonSchemaSpec: "json_schema",
    RegexSpec: "regex",
    ChoiceSpec: "choice",
    GrammarSpec: "grammar",
    ToolCallSpec: "tools",
}
CLIENT_LEFT: Final = 499


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that has ended. Moments are seconds of the monotonic clock, in order.

    `trace` are the client's headers of trace context. Without an error and not whole: its client
    has left.
    """

    ask: Ask
    request_id: str
    model: str
    sampling: SamplingParams
    trace: Mapping[str, str]
    arrived: float
    moments: Mapping[str, float]
    error: BaseException | None = None
    is_whole: bool = False
    usage: Usage | None = None
    finish_reasons: Sequence[str] = ()


class Spans(Protocol):
    """Who makes traces of requests."""

    def ended(self, seen: Ended) -> None:
        """A request has just ended."""

    def close(self) -> None:
        """Nothing comes any more."""


class Journal:
    """Hears of every request; `Exchange` tells it the rest."""

    def __init__(
        self,
        metrics: Metrics,
        log: RequestLog,
        drafts: dict[str, Any],
        sampling: Callable[[GenerationOptions], SamplingParams],
        model: str,
        spans: Spans | None = None,
    ) -> None:
        """For the request log, `drafts` says what drafts and `sampling` what options come to."""
        self._sampling = sampling
        self._model = model
        self._spans = spans
        self._metrics = metrics
        self._log = log
        self._drafts = drafts

    def arrived(self, ask: Ask, request_id: str) -> None:
        """A request has been understood and has a place."""
        if (form := ask.options.program.constraint) is not None:
            self._metrics.count("constraint_requests", _FORMS[type(form)])
        self._log.write("request_start", request=self._request(ask, request_id))

    def refused(
        self,
        ask: Ask,
        request_id: str,
        error: BaseException | None,
        *,
        arrived: float,
        trace: Mapping[str, str],
    ) -> None:
        """One that never came to run; None: its client has left."""
        if self._spans is not None:
            self._spans.ended(
                Ended(
                    ask,
                    request_id,
                    self._model,
                    self._sampling(ask.options),
                    trace,
                    arrived,
                    {},
                    error,
                )
            )
        status = CLIENT_LEFT if error is None else fault_of(error).status
        outcome = _outcome(status)
        self._count_form(error)
        self._metrics.count("requests", outcome)
        self._log.write(
            "request_rejected" if outcome == "rejected" else "request_error",
            request=self._request(ask, request_id),
            error=_error(error, status),
        )

    def first(self, exchange: Exchange) -> None:
        """The first event has come."""
        assert exchange.first_at is not None
        self._metrics.observe("time_to_first_token_seconds", exchange.first_at - exchange.arrived)
        self._metrics.observe("request_queue_seconds", exchange.queue_seconds)
        self._metrics.observe("request_queue_time_seconds", exchange.queue_seconds)

    def done(self, exchange: Exchange) -> None:
        """All answers are whole."""
        self._trace(exchange, None)
        self._metrics.count("requests", "done")
        total = time.monotonic() - exchange.arrived
        self._metrics.observe("request_duration_seconds", total)
        self._metrics.observe("e2e_request_latency_seconds", total)
        for index, result in sorted(exchange.results.items()):
            if index % exchange.ask.count == 0:
                self._metrics.started(result.usage.prompt_tokens, result.usage.cached_tokens)
            self._metrics.finished(result, _REASONS.get(result.finish_reason, "stop"))
            verdict = exchange.verdicts[index]
            self._metrics.judged(verdict, result.usage.completion_tokens)
            self._log.write(
                "request_done",
                request=self._request(exchange.ask, exchange.request_id),
                result=_result(result),
                timings_seconds=_timings(exchange, result, total),
                rates_tokens_per_second=_rates(result, verdict),
                audit=verdict.to_json(),
                speculative=self._drafts,
            )

    def failed(self, exchange: Exchange, error: BaseException | None) -> None:
        """It has ended by an error; None: the client has left."""
        self._trace(exchange, error)
        status = CLIENT_LEFT if error is None else fault_of(error).status
        self._metrics.count("requests", _outcome(status))
        self._count_form(error)
        if error is not None:
            self._metrics.count("response_failures")
            # What none of our own words describe needs its place.
            trace = None if isinstance(error, NInferError) else error
            level = logging.ERROR if is_defect(status) else logging.WARNING
            _log.log(level, "request %s failed: %s", exchange.request_id, error, exc_info=trace)
        self._log.write(
            "request_error",
            request=self._request(exchange.ask, exchange.request_id),
            error=_error(error, status),
        )

    def _trace(self, exchange: Exchange, error: BaseException | None) -> None:
        if self._spans is None:
            return
        moments = {
            "prompt prepared": exchange.prepared,
            "admitted": exchange.admitted_at,
            "first token": exchange.first_at,
        }
        results = [result for _, result in sorted(exchange.results.items())]
        self._spans.ended(
            Ended(
                exchange.ask,
                exchange.request_id,
                self._model,
                self._sampling(exchange.ask.options),
                exchange.trace,
                exchange.arrived,
                {name: moment for name, moment in moments.items() if moment is not None},
                error,
                is_whole=error is None and exchange.ended,
                usage=exchange.usage(),
                finish_reasons=[_finish_word(result) for result in results],
            )
        )

    def _count_form(self, error: BaseException | None) -> None:
        if isinstance(error, ConstraintError):
            self._metrics.count("constraint_refusals", error.code)

    def _request(self, ask: Ask, request_id: str) -> dict[str, Any]:
        options, conversation = ask.options, ask.conversation
        sampling = self._sampling(options)
        messages = conversation.messages if conversation else ()
        template = conversation.template if conversation else None
        return {
            "request_id": request_id,
            "protocol": ask.protocol,
            "model": ask.model,
            "stream": ask.stream,
            "message_count": len(messages) or len(ask.prompts),
            "requested_output_tokens": options.max_new,
            "requested_output_tokens_source": (
                "server_default" if ask.max_tokens is None else "client"
            ),
            "tool_count": len(conversation.tools) if conversation else 0,
            "tool_choice": ask.tool_choice,
            "has_tool_history": any(m.role == "tool" or m.tool_calls for m in messages),
            "enable_thinking": bool(template and template.enable_thinking),
            "preserve_thinking": bool(template and template.preserve_thinking),
            "sampling": {name: getattr(sampling, name) for name in _SAMPLING},
        }


def _finish_word(result: GenerationResult) -> str:
    word = _REASONS.get(result.finish_reason, "stop")
    return "tool_calls" if result.tool_calls and word == "stop" else word


def _outcome(status: int) -> str:
    if status == CLIENT_LEFT:
        return "cancelled"
    if status in (429, 503):
        return "rejected"
    return "invalid" if status < 500 else "error"


def _error(error: BaseException | None, status: int) -> dict[str, Any]:
    return {"message": "the client left" if error is None else str(error), "status": status}


def _result(result: GenerationResult) -> dict[str, Any]:
    usage = result.usage
    return {
        "finish_reason": str(result.finish_reason),
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "computed_prefill_tokens": usage.prompt_tokens - usage.cached_tokens,
        "prefix_cache_hit_tokens": usage.cached_tokens,
        "prefix_reuse_path": _path(result),
        "prefix_miss": None if result.prefix_miss is None else asdict(result.prefix_miss),
        "tool_call_count": len(result.tool_calls),
    }


def _path(result: GenerationResult) -> str:
    return "restore_turn_checkpoint" if result.usage.cached_tokens else "full_reset"


def _rates(result: GenerationResult, verdict: LiveVerdict) -> dict[str, Any]:
    """Rates, and beside them what was written at that rate."""
    usage = result.usage
    computed = usage.prompt_tokens - usage.cached_tokens
    return {
        "prefill": _rate(computed, result.prefill_seconds),
        "decode": _rate(usage.completion_tokens - 1, result.decode_seconds),
        "verdict": verdict.word,
    }


def _rate(tokens: int, seconds: float) -> float | None:
    return tokens / seconds if tokens > 0 and seconds > 0 else None


def _timings(exchange: Exchange, result: GenerationResult, total: float) -> dict[str, Any]:
    first = exchange.first_at
    return {
        "prepare": exchange.prepared - exchange.arrived,
        "ttft": None if first is None else first - exchange.arrived,
        "prefill": result.prefill_seconds,
        "decode": result.decode_seconds,
        "total": total,
    }
