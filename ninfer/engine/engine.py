"""Engine: text in, text out; the one place where prompts, tokens and model state meet."""

import time
from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Items
from dataclasses import replace
from functools import cached_property
from typing import Final, Self

from ninfer.engine.build import build_runtime
from ninfer.engine.constraints import constraint_spec
from ninfer.engine.forms import choose_forms
from ninfer.engine.generation_options import GenerationOptions, check_generation, thinks
from ninfer.engine.loader import LoadedModel, load_model
from ninfer.engine.options import EngineOptions, check_engine
from ninfer.engine.reports import EngineFacts, EngineSnapshot, facts_of, snapshot_of
from ninfer.engine.residency import Progress, Residency
from ninfer.engine.resolve import Resolved, resolve
from ninfer.engine.session import Session
from ninfer.engine.text_side import TextSide
from ninfer.errors import NInferError, PromptError, UsageError
from ninfer.frontend import SourceRules
from ninfer.frontend.least_tokens import LeastTokens
from ninfer.log import get_logger
from ninfer.request import (
    SAMPLING_NAMES,
    ConstraintSpec,
    Conversation,
    FinishReason,
    GenerationEvent,
    PreparedPrompt,
    Recall,
    SamplingParams,
    StopRules,
    TokenConstraint,
    TokenForcer,
)
from ninfer.runtime import PAGE_SIZE, Runtime, Sequence, SequenceRequest
from ninfer.runtime import Progress as RuntimeProgress
from ninfer.runtime.memory_plan import ModelSizes
from ninfer.runtime.prefix_match import PrefixStats
from ninfer.runtime.speculative import PositionCounts, SpeculationCounters

log = get_logger(__name__)


def _no_progress(name: str, done: int, total: int) -> None:
    """The default for callers that show no progress."""


class Engine:
    """A loaded model with its runtime. Not thread-safe: one thread drives it (see AsyncEngine)."""

    def __init__(
        self,
        model: LoadedModel,
        runtime: Runtime,
        facts: EngineFacts,
        *,
        step_timeout: float = 0.0,
    ) -> None:
        """`step_timeout` is for whoever drives it: seconds a step may take, 0 for any time."""
        self._facts: Final = facts
        self.step_timeout: Final = step_timeout
        self._model = model
        self._runtime = runtime
        self._inboxes: dict[Sequence, deque[RuntimeProgress]] = {}

    @classmethod
    def load(cls, options: EngineOptions, progress: Progress = _no_progress) -> "Engine":
        """Open, check and load an artifact.

        Raises UsageError for an option that cannot be honoured and ArtifactError or ConfigError for
        a file that is not a whole model that this version runs.
        """
        check_engine(options)
        chosen: list[Resolved] = []
        backend: list[str] = []

        def residency(sizes: ModelSizes) -> Residency:
            chosen.append(resolve(options, sizes))
            # Before weights are read, which are re-tiled for the kernels.
            backend.append(choose_forms(chosen[0].residency.device, options.backend))
            return chosen[0].residency

        model = load_model(options, residency, progress)
        (resolved,) = chosen
        residence = resolved.residency
        log.info(
            "backend %s on %s, activations %s, weights %s, KV %s for %d tokens",
            backend[0],
            residence.device,
            str(residence.dtype).removeprefix("torch."),
            "decoded" if residence.decoded else "packed",
            options.kv_dtype,
            resolved.runtime.pages * PAGE_SIZE,
        )
        runtime = build_runtime(options, model, resolved, backend[0])
        facts = facts_of(options, model, resolved)
        return cls(model, runtime, facts, step_timeout=options.step_timeout_s)

    def prepare(
        self,
        conversation: Conversation,
        sources: SourceRules | None = None,
        recall: Recall | None = None,
    ) -> PreparedPrompt:
        """Load media, render and tokenize messages. Raises PromptError naming the message.

        `sources` says where media may come from; the default leaves files of this machine alone.
        `recall` knows the ids of turns that the model wrote itself.
        """
        return self._model.frontend.prepare(conversation, sources=sources, recall=recall)

    def sampling_params(self, options: GenerationOptions) -> SamplingParams:
        """The model's preset, overridden by the options that were given."""
        params = self._model.sampling(thinking=thinks(options))
        given = {
            name: value for name in SAMPLING_NAMES if (value := getattr(options, name)) is not None
        }
        params = replace(params, **given, logit_bias=options.logit_bias, seed=options.seed)
        return replace(params, temperature=0.0) if options.greedy else params

    def generate(
        self, prompt: PreparedPrompt, options: GenerationOptions, *, arrived: float | None = None
    ) -> "Generation":
        """Check the request, queue it, and give an iterator of events and a GenerationResult.

        Several generations may be under way; reading one drives all of them. The call itself
        raises UsageError for a bad option, PromptError for an empty prompt, ContextError for a
        prompt longer than the context and CapacityError when there is no place to wait; the
        iterator raises GenerationError when the model's output is not finite and QueueTimeoutError
        when no place became free in time. Times count from `arrived`, a time.monotonic() value; the
        default is now.
        """
        sequence, session = self.submit(prompt, options, arrived=arrived)
        return Generation(self, sequence, session)

    def generate_many(
        self,
        prompt: PreparedPrompt,
        options: GenerationOptions,
        count: int,
        *,
        arrived: float | None = None,
    ) -> "list[Generation]":
        """`count` generations of one prompt, which is computed once.

        Generation i gives what `generate` gives for the seed of the options plus i (modulo 2^64).
        Each may be closed on its own. Raises as `generate`, and UsageError for a count below 1.
        """
        pairs = self.submit_many(prompt, options, count, arrived=arrived)
        return [Generation(self, *made) for made in pairs]

    def submit(
        self, prompt: PreparedPrompt, options: GenerationOptions, *, arrived: float | None = None
    ) -> tuple[Sequence, Session]:
        """Check and queue a request, for callers that drive `step`; raises as `generate` does."""
        (made,) = self.submit_many(prompt, options, 1, arrived=arrived)
        return made

    def submit_many(
        self,
        prompt: PreparedPrompt,
        options: GenerationOptions,
        count: int,
        *,
        arrived: float | None = None,
    ) -> list[tuple[Sequence, Session]]:
        """The same for `generate_many`."""
        return self.submit_requests(self.requests(prompt, options, count, arrived=arrived))

    def requests(
        self,
        prompt: PreparedPrompt,
        options: GenerationOptions,
        count: int,
        *,
        arrived: float | None = None,
    ) -> list[tuple[SequenceRequest, Session]]:
        """The part of `submit_many` that any thread may do: check, compile grammars, make ready."""
        if count < 1:
            raise UsageError(f"{count} generations: must be 1 or more")
        seeds = [(options.seed + index) % 2**64 for index in range(count)]
        return [self._request(prompt, replace(options, seed=seed), arrived) for seed in seeds]

    def submit_requests(
        self, made: Items[tuple[SequenceRequest, Session]]
    ) -> list[tuple[Sequence, Session]]:
        """The rest of it, for the thread that drives the engine."""
        sequences = self._runtime.submit_many([request for request, _ in made])
        return list(zip(sequences, (session for _, session in made), strict=True))

    def _request(
        self, prompt: PreparedPrompt, options: GenerationOptions, arrived: float | None
    ) -> tuple[SequenceRequest, Session]:
        check_generation(options)
        self._check_ids("--stop-token-id", options.stop_token_id)
        self._check_ids("--logit-bias", (bias.token_id for bias in options.logit_bias))
        if not prompt.token_ids:
            raise PromptError("the prompt is empty; there is nothing to continue")
        capacity = self._runtime.output_capacity(len(prompt.token_ids))
        short = capacity < options.max_new
        rules = StopRules(options.stop_token_id, options.stop, options.reasoning_stop)
        frontend = self._model.frontend
        spec = constraint_spec(options)
        parser = frontend.new_output_parser(prompt, rules, raw=options.raw_output, constraint=spec)
        stop_ids = frozenset(() if options.program.ignore_stops else frontend.stop_ids) | {
            *rules.token_ids
        }
        request = SequenceRequest(
            prompt=prompt.token_ids,
            sampling=self.sampling_params(options),
            max_tokens=min(options.max_new, capacity),
            stop_ids=stop_ids,
            media=prompt.media,
            runs=prompt.runs,
            constraint=self._constraint(prompt, options, spec, stop_ids),
            forcer=self._forcer(prompt, options),
            loop_guard=options.loop_guard,
            logprobs=options.logprobs,
            prompt_logprobs=options.prompt_logprobs,
            deadline=None if options.deadline_ms is None else options.deadline_ms / 1000,
            arrived=arrived,
            cache_salt=options.program.cache_salt,
        )
        at_limit = FinishReason.CONTEXT_CAPACITY if short else FinishReason.OUTPUT_LIMIT
        session = Session(parser, len(prompt.token_ids), at_limit, rules.token_ids)
        return request, session

    @cached_property
    def text(self) -> TextSide:
        """Texts and tokens of the model, for any thread."""
        return TextSide(self._model.frontend)

    @property
    def facts(self) -> EngineFacts:
        """What does not change while the engine lives."""
        return self._facts

    def snapshot(self) -> EngineSnapshot:
        """Load and counters as of now. May be asked from another thread."""
        return snapshot_of(self._runtime)

    @property
    def has_work(self) -> bool:
        """Whether a step would do something."""
        return self._runtime.has_work

    @property
    def waited_seconds(self) -> float:
        """How long the host has waited for decode rounds of the device."""
        rounds = self._runtime.rounds
        return 0.0 if rounds is None else rounds.waited_seconds

    def step(self) -> list[RuntimeProgress]:
        """One pass over all running sequences; see Runtime.step."""
        return self._runtime.step()

    def cancel(self, sequence: Sequence) -> None:
        """End a sequence in whatever state it is; what it held is free afterwards."""
        self._inboxes.pop(sequence, None)
        self._runtime.cancel(sequence)

    def _forcer(self, prompt: PreparedPrompt, options: GenerationOptions) -> TokenForcer | None:
        budget = options.thinking_budget
        return None if budget is None else self._model.frontend.new_thinking_budget(prompt, budget)

    def _constraint(
        self,
        prompt: PreparedPrompt,
        options: GenerationOptions,
        spec: ConstraintSpec | None,
        stop_ids: frozenset[int],
    ) -> TokenConstraint | None:
        frontend = self._model.frontend
        if spec is not None:
            return frontend.new_constraint(prompt, spec)
        if not options.program.min_tokens:
            return None
        return LeastTokens(
            options.program.min_tokens, self._model.config.text.addressable, stop_ids
        )

    def describe(self) -> str:
        """What it is at, in one line, for a log. May be asked from another thread."""
        return self._runtime.describe()

    def check(self) -> None:
        """Assert that pages and slots add up; for idle times and tests."""
        self._runtime.check()

    def tidy(self) -> float | None:
        """Do one piece of work that can wait for idle times.

        Returns after how many seconds to call it again, None when nothing is left.
        """
        prefixes = self._runtime.prefixes
        return prefixes.tidy() if prefixes else None

    def close(self) -> None:
        """End in good order: kept prompts are in --prefix-dir afterwards."""
        if self._runtime.prefixes:
            self._runtime.prefixes.close()

    def speculation_counters(self) -> SpeculationCounters | None:
        """What speculation did so far; None without it."""
        speculation = self._runtime.speculation
        return speculation.counters if speculation else None

    def draft_positions(self) -> Mapping[str, PositionCounts]:
        """How many drafts were right so far, by source and number in the round."""
        speculation = self._runtime.speculation
        return speculation.positions if speculation else {}

    def prefix_stats(self) -> PrefixStats | None:
        """What prefix reuse did so far; None without it."""
        prefixes = self._runtime.prefixes
        return prefixes.stats if prefixes else None

    def _check_ids(self, flag: str, ids: Iterable[int]) -> None:
        bound = self._model.config.text.addressable
        for token_id in ids:
            if not 0 <= token_id < bound:
                raise UsageError(f"{flag} {token_id}: the model's ids are 0..{bound - 1}")

    def open_inbox(self, sequence: Sequence) -> deque[RuntimeProgress]:
        """Where `advance` puts what a sequence produced, until it is cancelled."""
        return self._inboxes.setdefault(sequence, deque())

    def advance(self) -> float:
        """One step whose results go to the inboxes; returns the seconds that it took."""
        start = time.perf_counter()
        for progress in self._runtime.step():
            if progress.sequence in self._inboxes:
                self._inboxes[progress.sequence].append(progress)
        return time.perf_counter() - start


class Generation:
    """An iterator over one generation's events. Closing it, or letting go of it, cancels the rest.

    Not a generator, whose clean-up would not run when nobody has read its first event.
    """

    def __init__(self, engine: Engine, sequence: Sequence, session: Session) -> None:
        self._engine = engine
        self._sequence = sequence
        self._session = session
        self._inbox = engine.open_inbox(sequence)
        self._events: deque[GenerationEvent] = deque()
        self._closed = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> GenerationEvent:
        while not self._events:
            if self._closed or self._session.result is not None:
                self.close()
                raise StopIteration
            while not self._inbox:
                self._session.spent(self._engine.advance())
            try:
                self._events.extend(self._session.feed(self._inbox.popleft()))
            except NInferError:
                self.close()
                raise
        event = self._events.popleft()
        if event is self._session.result:
            self.close()
        return event

    def close(self) -> None:
        """End the generation; pages and state slot are free afterwards. May be called twice."""
        if not self._closed:
            self._closed = True
            self._engine.cancel(self._sequence)

    def __del__(self) -> None:
        self.close()
