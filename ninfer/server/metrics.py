"""Counters, gauges and histograms of a server, under our own names and under those of vLLM."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ninfer.audit.live import USABLE, LiveVerdict
from ninfer.engine import AsyncEngine, EngineFacts
from ninfer.request import GenerationResult

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_STEP_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2)
_TOKENS: Final = (1, 10, 50, 100, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 262_144)


class Metrics:
    """What the server counts itself, and what it reads off the engine when it is asked."""

    def __init__(self, engine: AsyncEngine, model: str) -> None:
        # Without a second series for every counter, which says when it was made.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the package leaves it bare
        self.registry: Final = CollectorRegistry()
        self._model = model
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, list[Histogram]] = {}
        self._make_counters()
        self._make_histograms()
        self.registry.register(_EngineReader(engine, model))

    def _make_counters(self) -> None:
        for name, text, labels in (
            ("requests", "requests by how they ended", ["outcome"]),
            ("response_failures", "answers broken off by an error", []),
            ("prompt_tokens", "tokens of prompts", []),
            ("prompt_tokens_cached", "tokens of prompts that were not computed again", []),
            ("prefill_tokens", "tokens of prompts that were computed", []),
            ("answers", "answers by what they were worth", ["verdict"]),
            ("answers_ended", "answers by how they ended", ["ending"]),
            (
                "structured_answers",
                "answers that had to have a form, by whether they do",
                ["kept"],
            ),
            ("constraint_requests", "requests whose answers had to have a form", ["kind"]),
            ("constraint_refusals", "requests with a form that cannot be enforced", ["code"]),
            ("usable_tokens", "tokens of answers that can be used", []),
            ("unknown_request_fields", "members of requests that have no meaning here", ["field"]),
        ):
            self._counters[name] = Counter(f"ninfer_{name}", text, labels, registry=self.registry)
        for name, text, labels in (
            ("request_success", "requests by why they ended", ["model_name", "finished_reason"]),
            ("prompt_tokens", "tokens of prompts", ["model_name"]),
        ):
            key = f"vllm:{name}"
            self._counters[key] = Counter(key, text, labels, registry=self.registry)

    def _make_histograms(self) -> None:
        for name, ours, buckets in (
            ("time_to_first_token_seconds", True, _SECONDS),
            ("request_duration_seconds", True, _SECONDS),
            ("request_queue_seconds", True, _SECONDS),
            ("e2e_request_latency_seconds", False, _SECONDS),
            ("request_queue_time_seconds", False, _SECONDS),
            ("request_prefill_time_seconds", False, _SECONDS),
            ("request_decode_time_seconds", False, _SECONDS),
            ("request_inference_time_seconds", False, _SECONDS),
            ("inter_token_latency_seconds", False, _STEP_SECONDS),
            ("request_time_per_output_token_seconds", False, _STEP_SECONDS),
            ("request_prompt_tokens", False, _TOKENS),
            ("request_generation_tokens", False, _TOKENS),
        ):
            made = []
            if ours:
                made.append(self._histogram(f"ninfer_{name}", [], buckets))
            if not ours or name == "time_to_first_token_seconds":
                named = self._histogram(f"vllm:{name}", ["model_name"], buckets)
                made.append(named.labels(self._model))
            self._histograms[name] = made

    def _histogram(self, name: str, labels: list[str], buckets: Iterable[float]) -> Histogram:
        text = name.partition("_")[2].replace("_", " ")
        return Histogram(name, text, labels, buckets=tuple(buckets), registry=self.registry)

    def observe(self, name: str, value: float) -> None:
        """Add a value to the histograms of a name."""
        for histogram in self._histograms[name]:
            histogram.observe(value)

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to a counter of ours."""
        counter = self._counters[name]
        (counter.labels(*labels) if labels else counter).inc(by)

    def started(self, prompt_tokens: int, cached_tokens: int) -> None:
        """A prompt has been computed."""
        self.count("prompt_tokens", by=prompt_tokens)
        self.count("vllm:prompt_tokens", self._model, by=prompt_tokens)
        self.count("prompt_tokens_cached", by=cached_tokens)
        self.count("prefill_tokens", by=prompt_tokens - cached_tokens)

    def finished(self, result: GenerationResult, reason: str) -> None:
        """An answer is whole."""
        tokens = result.usage.completion_tokens
        self.count("vllm:request_success", self._model, reason)
        self.observe("request_prompt_tokens", result.usage.prompt_tokens)
        self.observe("request_generation_tokens", tokens)
        self.observe("request_prefill_time_seconds", result.prefill_seconds)
        self.observe("request_decode_time_seconds", result.decode_seconds)
        self.observe(
            "request_inference_time_seconds", result.prefill_seconds + result.decode_seconds
        )
        if tokens > 1:
            each = result.decode_seconds / (tokens - 1)
            self.observe("request_time_per_output_token_seconds", each)
            self.observe("inter_token_latency_seconds", each)

    def judged(self, verdict: LiveVerdict, tokens: int) -> None:
        """An answer of so many tokens has its verdict."""
        self.count("answers", _label(verdict.word))
        self.count("answers_ended", _label(verdict.ending))
        if verdict.kept is not None:
            self.count("structured_answers", "yes" if verdict.kept else "no")
        if verdict.word == USABLE:
            self.count("usable_tokens", by=tokens)

    def page(self) -> bytes:
        """The page that Prometheus reads."""
        return generate_latest(self.registry)


class _EngineReader(Collector):
    """The engine's numbers, read when the page is made."""

    def __init__(self, engine: AsyncEngine, model: str) -> None:
        self._engine = engine
        self._model = model

    def collect(self) -> Iterator[Metric]:
        facts, snapshot = self._engine.engine.facts, self._engine.engine.snapshot()
        load = snapshot.load
        yield from self._facts(facts)
        decoding = load.running - load.prefilling - load.replaying
        for name, value in (
            ("engine_ready", self._engine.is_ready),
            ("requests_running", load.running),
            ("requests_waiting", load.waiting),
            ("requests_paused", load.preempted),
            ("requests_prefilling", load.prefilling),
            ("requests_decode_ready", decoding),
            ("requests_replaying", load.replaying),
            ("requests_materializing", load.fetching),
            ("device_kv_used_pages", load.pages - load.free_pages),
            ("device_kv_capacity_pages", load.pages),
            ("device_state_used_slots", load.slots - load.free_slots),
            ("device_state_capacity_slots", load.slots),
            ("host_context_used_bytes", snapshot.host_bytes),
            # Memory is taken as it is used, none ahead.
            ("host_context_reserved_bytes", snapshot.host_bytes),
            ("host_context_capacity_bytes", snapshot.host_capacity_bytes),
            ("host_context_peak_bytes", snapshot.host_peak_bytes),
        ):
            yield _gauge(f"ninfer_{name}", value)
        spec = (
            ("spec_decode_rounds", snapshot.spec_rounds),
            ("spec_decode_draft_tokens", snapshot.spec_drafted),
            ("spec_decode_accepted_tokens", snapshot.spec_accepted),
            ("spec_decode_fallback_steps", snapshot.spec_fallbacks),
        )
        counters: tuple[tuple[str, float], ...] = (
            ("generation_tokens", self._engine.generated_tokens),
            ("decode_tokens", self._engine.generated_tokens),
            ("steps", self._engine.steps),
            ("decode_rounds", snapshot.decode_rounds),
            ("preemptions", load.preemptions),
            ("replayed_tokens", load.replayed_tokens),
            ("replay_restores", load.replays),
            ("snapshot_restores", snapshot.prefix_hits),
            ("context_transfer_bytes", snapshot.transferred_bytes),
            ("host_work_seconds", self._engine.host_seconds),
            ("device_wait_seconds", self._engine.waited_seconds),
            ("prefix_queries_tokens", snapshot.prefix_asked_tokens),
            ("prefix_hits_tokens", snapshot.prefix_reused_tokens),
            *spec,
        )
        for name, amount in counters:
            yield _counter(f"ninfer_{name}", amount)
        for name, text, values in (
            ("prefix_misses", "prompts by why not more was reused", snapshot.prefix_misses),
            ("plain_steps", "steps by why they were no decode rounds", snapshot.plain_steps),
        ):
            by_reason = CounterMetricFamily(f"ninfer_{name}", text, labels=["reason"])
            for reason, value in values.items():
                by_reason.add_metric([reason], value)
            yield by_reason
        yield from self._named_as_vllm()

    def _facts(self, facts: EngineFacts) -> Iterator[Metric]:
        info = GaugeMetricFamily(
            "ninfer_model_info", "what is served", labels=["model", "kv_dtype", "spec", "device"]
        )
        info.add_metric([self._model, facts.kv_dtype, facts.spec or "none", facts.device], 1)
        yield info
        yield _gauge("ninfer_max_concurrency", facts.max_concurrency)
        yield _gauge("ninfer_max_context_tokens", facts.max_context)
        yield _gauge("ninfer_kv_capacity_tokens", facts.kv_tokens)

    def _named_as_vllm(self) -> Iterator[Metric]:
        snapshot = self._engine.engine.snapshot()
        load, names = snapshot.load, {"model_name": self._model}
        used = (load.pages - load.free_pages) / load.pages if load.pages else 0.0
        for name, value in (
            ("num_requests_running", load.running),
            ("num_requests_waiting", load.waiting),
            ("kv_cache_usage_perc", used),
        ):
            yield _gauge(f"vllm:{name}", value, names)
        for name, value in (
            ("generation_tokens", self._engine.generated_tokens),
            ("prefix_cache_queries", snapshot.prefix_asked_tokens),
            ("prefix_cache_hits", snapshot.prefix_reused_tokens),
            ("num_preemptions", load.preemptions),
            ("spec_decode_num_drafts", snapshot.spec_rounds),
            ("spec_decode_num_draft_tokens", snapshot.spec_drafted),
            ("spec_decode_num_accepted_tokens", snapshot.spec_accepted),
        ):
            yield _counter(f"vllm:{name}", value, names)
        at = CounterMetricFamily(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "accepted drafts by their number in the round",
            labels=["model_name", "position"],
        )
        for place, value in enumerate(snapshot.spec_accepted_at):
            at.add_metric([self._model, str(place)], value)
        yield at


def _label(word: str) -> str:
    return word.replace(" ", "_")


def _gauge(name: str, value: float, labels: dict[str, str] | None = None) -> Metric:
    return _family(GaugeMetricFamily, name, value, labels)


def _counter(name: str, value: float, labels: dict[str, str] | None = None) -> Metric:
    return _family(CounterMetricFamily, name, value, labels)


def _family(
    kind: Callable[..., GaugeMetricFamily | CounterMetricFamily],
    name: str,
    value: float,
    labels: dict[str, str] | None,
) -> Metric:
    text = name.replace(":", "_").partition("_")[2].replace("_", " ")
    family = kind(name, text, labels=list(labels or ()))
    family.add_metric(list((labels or {}).values()), float(value))
    return family
