"""OpenTelemetry traces: one span a request, with the attributes of the conventions for GenAI."""

import http.server
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from serving import END, Server, serving, text_of

from ninfer.errors import GenerationError, UsageError
from ninfer.server.options import ServedEngineOptions, ServerOptions, check_server
from ninfer.server.traces import RequestSpans, exporting

CHAT = "/v1/chat/completions"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture(scope="module")
def server(micro_artifacts: dict[str, Path], exporter: InMemorySpanExporter) -> Iterator[Server]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    engine = {"max_concurrency": 1, "max_pending_requests": 1, "max_context": 512}
    with serving(micro_artifacts["dense"], engine=engine, spans=RequestSpans(provider)) as running:
        running.scripts.texts["quest"] = f"I think.\n</think>\n\nYes.{END}"
        running.scripts.texts["crawl"] = "slow " * 200
        running.scripts.pace["crawl"] = 0.01
        yield running


@pytest.fixture(autouse=True)
def no_spans_yet(exporter: InMemorySpanExporter) -> None:
    exporter.clear()


def one(server: Server, exporter: InMemorySpanExporter) -> ReadableSpan:
    server.settled()
    (span,) = exporter.get_finished_spans()
    assert span.kind is SpanKind.SERVER
    return span


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_request_is_a_span_of_the_clients_trace(
    server: Server, exporter: InMemorySpanExporter, stream: bool
) -> None:
    begun = time.time_ns()
    body = {
        "messages": text_of("quest"),
        "temperature": 0.5,
        "top_p": 0.75,
        "top_k": 7,
        "seed": -3,
        "presence_penalty": 1.5,
        "max_tokens": 50,
        "stop": ["zz"],
        "stream": stream,
    }
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    reply = server.post(CHAT, body, headers=headers)
    assert reply.status_code == 200
    span = one(server, exporter)
    assert span.name == "chat tiny"
    assert span.context is not None and f"{span.context.trace_id:032x}" == TRACE
    assert span.parent is not None and f"{span.parent.span_id:016x}" == PARENT
    assert span.status.status_code is StatusCode.UNSET
    found = dict(span.attributes or {})
    first = found.pop("gen_ai.response.time_to_first_chunk")
    written = found.pop("gen_ai.usage.output_tokens")
    thought = found.pop("gen_ai.usage.reasoning.output_tokens")
    cached = found.pop("gen_ai.usage.cache_read.input_tokens")
    read = found.pop("gen_ai.usage.input_tokens")
    assert 0 < thought < written <= 50 and 0 <= cached < read
    if not stream:
        usage = reply.json()["usage"]
        assert (read, written) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "ninfer",
        "gen_ai.request.model": "tiny",
        "gen_ai.response.model": "tiny",
        "gen_ai.request.max_tokens": 50,
        "gen_ai.request.stream": stream,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.75,
        "gen_ai.request.top_k": 7.0,
        "gen_ai.request.seed": -3,
        "gen_ai.request.presence_penalty": 1.5,
        "gen_ai.request.frequency_penalty": 0.0,
        "gen_ai.request.stop_sequences": ("zz",),
        "gen_ai.response.finish_reasons": ("stop",),
        "ninfer.request.id": reply.headers["x-request-id"],
        "ninfer.request.protocol": "chat",
    }
    assert span.start_time is not None and span.end_time is not None
    assert begun <= span.start_time < span.end_time <= time.time_ns()
    assert isinstance(first, float) and 0 < first < (span.end_time - span.start_time) / 1e9
    assert [event.name for event in span.events] == ["prompt prepared", "admitted", "first token"]
    times = [event.timestamp for event in span.events]
    assert [span.start_time, *times, span.end_time] == sorted(
        [span.start_time, *times, span.end_time]
    )


def test_several_answers_are_counted_together(
    server: Server, exporter: InMemorySpanExporter
) -> None:
    body = {"prompt": ["a", "b"], "max_tokens": 2, "ignore_eos": True}
    assert server.post("/v1/completions", body).status_code == 200
    span = one(server, exporter)
    assert span.name == "text_completion tiny" and span.parent is None
    assert span.attributes is not None
    assert span.attributes["gen_ai.request.choice.count"] == 2
    assert span.attributes["gen_ai.usage.output_tokens"] == 4
    assert span.attributes["gen_ai.response.finish_reasons"] == ("length", "length")


def test_a_form_is_the_type_of_the_output(server: Server, exporter: InMemorySpanExporter) -> None:
    body = {"prompt": "a", "max_tokens": 2, "guided_json": {"type": "object"}}
    assert server.post("/v1/completions", body).status_code == 200
    assert dict(one(server, exporter).attributes or {})["gen_ai.output.type"] == "json"


def test_errors_are_the_status_of_the_span(
    server: Server, exporter: InMemorySpanExporter, monkeypatch: Any
) -> None:
    class Nan:
        is_done = False

        def forced(self) -> int:
            raise GenerationError("secret numbers")

        def advance(self, token_id: int) -> None:
            """Never comes to it."""

    long = {"messages": text_of("long " * 600)}
    assert server.post(CHAT, long).status_code == 400
    span = one(server, exporter)
    assert span.status.status_code is StatusCode.ERROR
    assert dict(span.attributes or {})["error.type"] == "context_length_exceeded"
    exporter.clear()
    monkeypatch.setattr(server.engine, "_forcer", lambda prompt, options: Nan())
    assert server.post(CHAT, {"messages": text_of("a")}).status_code == 500
    span = one(server, exporter)
    assert dict(span.attributes or {})["error.type"] == "internal_error"
    assert "secret" not in span.to_json()


def test_a_client_that_leaves_is_no_failure(server: Server, exporter: InMemorySpanExporter) -> None:
    body = {"messages": text_of("crawl"), "stream": True, "max_tokens": 300}
    with (
        httpx.Client(timeout=60) as client,
        client.stream("POST", f"{server.url}{CHAT}", json=body) as reply,
    ):
        next(reply.iter_lines())
    span = one(server, exporter)
    assert span.status.status_code is StatusCode.UNSET
    attributes = dict(span.attributes or {})
    assert attributes["error.type"] == "client_left"
    assert "gen_ai.response.finish_reasons" not in attributes


def test_no_text_is_in_a_span(server: Server, exporter: InMemorySpanExporter) -> None:
    server.post(CHAT, {"messages": text_of("quest", "PRIVATE"), "max_tokens": 40})
    shown = one(server, exporter).to_json()
    assert "PRIVATE" not in shown and "Yes." not in shown


def test_spans_go_to_the_collector(micro_artifacts: dict[str, Path]) -> None:
    got: list[ExportTraceServiceRequest] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            assert self.path == "/v1/traces"
            got.append(ExportTraceServiceRequest.FromString(data))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *given: Any) -> None:
            """Silent."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        spans = exporting(f"http://127.0.0.1:{collector.server_port}/v1/traces")
        try:
            with serving(micro_artifacts["dense"], spans=spans) as running:
                assert running.post(CHAT, {"messages": text_of("a"), "max_tokens": 1}).is_success
        finally:
            collector.shutdown()
            thread.join()
    (resource,) = [part for request in got for part in request.resource_spans]
    names = {item.key: item.value.string_value for item in resource.resource.attributes}
    assert names["service.name"] == "ninfer"
    (span,) = [span for scope in resource.scope_spans for span in scope.spans]
    assert span.name == "chat tiny"


def test_a_server_without_traces_needs_no_opentelemetry() -> None:
    code = (
        "import sys; sys.modules['opentelemetry.exporter'] = None\n"
        "import ninfer.server.serve\n"
        "from ninfer.cli.serve import spans_of\n"
        "from ninfer.server.options import ServerOptions\n"
        "assert spans_of(ServerOptions()) is None\n"
        "assert not any(name.startswith(('opentelemetry.sdk.', 'opentelemetry.exporter')) "
        "for name, module in sys.modules.items() if module)\n"
        "spans_of(ServerOptions(otlp_traces_endpoint='http://127.0.0.1:1/v1/traces'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "UsageError: --otlp-traces-endpoint needs opentelemetry.exporter" in done.stderr, (
        done.stderr
    )
    assert "pip install 'ninfer[otel]'" in done.stderr


def test_an_endpoint_is_a_url() -> None:
    options = ServerOptions(otlp_traces_endpoint="localhost:4317")
    with pytest.raises(UsageError, match="localhost:4317: must begin with http"):
        check_server(options, ServedEngineOptions(artifact=Path("a")))
