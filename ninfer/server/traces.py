"""OpenTelemetry traces: one span for each request, in the semantic conventions for GenAI.

Only this file needs OpenTelemetry, and only `ninfer serve --otlp-traces-endpoint` imports it. Spans
hold numbers and names, never what was asked or answered.
"""

import os
import time
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ninfer.request import JsonObjectSpec, JsonSchemaSpec
from ninfer.server.errors import fault_of
from ninfer.server.journal import Ended
from ninfer.version import VERSION

_NAME: Final = "ninfer"
_OPERATIONS: Final = {"completions": "text_completion"}
_LEFT: Final = "client_left"
# Members of SamplingParams that the conventions name alike.
_SAMPLING: Final = ("temperature", "top_p", "presence_penalty", "frequency_penalty")


class RequestSpans:
    """Hears how requests end, and tells a tracer."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(_NAME, VERSION)
        self._context = TraceContextTextMapPropagator()

    def ended(self, seen: Ended) -> None:
        """Make the span of a request that has ended now, a part of the client's trace if it
        named one."""
        now, clock = time.monotonic(), time.time_ns()

        def at(moment: float) -> int:
            return clock - round((now - moment) * 1e9)

        operation = _OPERATIONS.get(seen.ask.protocol, "chat")
        span = self._tracer.start_span(
            f"{operation} {seen.ask.model}",
            context=self._context.extract(seen.trace),
            kind=SpanKind.SERVER,
            attributes={"gen_ai.operation.name": operation, **_attributes(seen)},
            start_time=at(seen.arrived),
        )
        for name, moment in seen.moments.items():
            span.add_event(name, timestamp=at(moment))
        if seen.error is not None:
            fault = fault_of(seen.error)
            span.set_attribute("error.type", fault.code)
            span.set_status(Status(StatusCode.ERROR, fault.message))
        elif not seen.is_whole:
            span.set_attribute("error.type", _LEFT)
        span.end(end_time=clock)

    def close(self) -> None:
        """Send what is still held, and end."""
        self._provider.shutdown()


def exporting(endpoint: str) -> RequestSpans:
    """Spans that go to a collector at `endpoint`, by OTLP over HTTP, a few at a time.

    Headers, service name and sampling are those of OpenTelemetry's own environment variables.
    """
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": _NAME}
    provider = TracerProvider(resource=Resource.create({"service.version": VERSION, **named}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return RequestSpans(provider)


def _attributes(seen: Ended) -> dict[str, Any]:
    ask, options = seen.ask, seen.ask.options
    found: dict[str, Any] = {
        "gen_ai.provider.name": _NAME,
        "gen_ai.request.model": ask.model,
        "gen_ai.response.model": seen.model,
        "gen_ai.request.max_tokens": options.max_new,
        "gen_ai.request.stream": ask.stream,
        "gen_ai.request.seed": _signed(seen.sampling.seed),
        "gen_ai.request.top_k": float(seen.sampling.top_k),
        "ninfer.request.id": seen.request_id,
        "ninfer.request.protocol": ask.protocol,
    }
    found |= {f"gen_ai.request.{name}": getattr(seen.sampling, name) for name in _SAMPLING}
    if isinstance(options.program.constraint, JsonObjectSpec | JsonSchemaSpec):
        found["gen_ai.output.type"] = "json"
    if ask.answers != 1:
        found["gen_ai.request.choice.count"] = ask.answers
    if options.stop:
        found["gen_ai.request.stop_sequences"] = options.stop
    if seen.usage is not None:
        found |= {
            "gen_ai.usage.input_tokens": seen.usage.prompt_tokens,
            "gen_ai.usage.output_tokens": seen.usage.completion_tokens,
            "gen_ai.usage.cache_read.input_tokens": seen.usage.cached_tokens,
            "gen_ai.usage.reasoning.output_tokens": seen.usage.reasoning_tokens,
        }
    if seen.finish_reasons:
        found["gen_ai.response.finish_reasons"] = seen.finish_reasons
    first = seen.moments.get("first token")
    if first is not None:
        found["gen_ai.response.time_to_first_chunk"] = first - seen.arrived
    return found


def _signed(seed: int) -> int:
    """The seed as clients may have given it: attributes are 64-bit integers with a sign."""
    return seed - 2**64 if seed >= 2**63 else seed
