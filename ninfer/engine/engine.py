"""Engine: text in, text out; the one place where prompts, tokens and model state meet."""

import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace

from ninfer.engine.loader import LoadedModel, load_model
from ninfer.engine.options import (
    EngineOptions,
    GenerationOptions,
    check_engine,
    check_generation,
    thinks,
)
from ninfer.engine.residency import Progress, Residency
from ninfer.engine.resolve import resolve_residency, resolve_runtime
from ninfer.errors import PromptError, UsageError
from ninfer.frontend import SourceRules
from ninfer.log import get_logger
from ninfer.models import ModelConfig
from ninfer.models.qwen3_6 import sampling_preset
from ninfer.ops.dispatch import set_backend
from ninfer.request import (
    Conversation,
    FinishReason,
    GenerationEvent,
    GenerationResult,
    PreparedPrompt,
    SamplingParams,
    StopRules,
    Usage,
)
from ninfer.runtime import Runtime

log = get_logger(__name__)

# The only one this version has, on every device.
BACKEND = "reference"


def _no_progress(name: str, done: int, total: int) -> None:
    """The default for callers that show no progress."""


class Engine:
    """A loaded model with its runtime. One generation at a time; closing the iterator ends it."""

    def __init__(self, model: LoadedModel, runtime: Runtime) -> None:
        self._model = model
        self._runtime = runtime

    @classmethod
    def load(cls, options: EngineOptions, progress: Progress = _no_progress) -> "Engine":
        """Open, check and load an artifact.

        Raises UsageError for an option that cannot be honoured and ArtifactError or ConfigError for
        a file that is not a whole model that this version runs.
        """
        check_engine(options)
        chosen: list[Residency] = []

        def residency(config: ModelConfig) -> Residency:
            chosen.append(resolve_residency(options, config))
            # Sizes are checked before any weight is read.
            resolve_runtime(options, config, chosen[0])
            return chosen[0]

        model = load_model(options, residency, progress)
        (residence,) = chosen
        set_backend(BACKEND)
        log.info(
            "backend %s on %s, activations %s, weights %s, KV %s",
            BACKEND,
            residence.device,
            str(residence.dtype).removeprefix("torch."),
            "decoded" if residence.decoded else "packed",
            options.kv_dtype,
        )
        sizes = resolve_runtime(options, model.config, residence)
        runtime = Runtime(model.weights, model.config, sizes, model.vision)
        return cls(model, runtime)

    def prepare(
        self, conversation: Conversation, sources: SourceRules | None = None
    ) -> PreparedPrompt:
        """Load media, render and tokenize messages. Raises PromptError naming the message.

        `sources` says where media may come from; the default leaves files of this machine alone.
        """
        return self._model.frontend.prepare(conversation, sources=sources)

    def sampling_params(self, options: GenerationOptions) -> SamplingParams:
        """The preset of the mode, overridden by the options that were given."""
        params = sampling_preset(self._model.config, thinking=thinks(options))
        names = (
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "presence_penalty",
            "frequency_penalty",
        )
        given = {name: value for name in names if (value := getattr(options, name)) is not None}
        params = replace(params, **given, seed=options.seed)
        return replace(params, temperature=0.0) if options.greedy else params

    def generate(
        self, prompt: PreparedPrompt, options: GenerationOptions
    ) -> Generator[GenerationEvent, None, None]:
        """Check the request, then give an iterator of text pieces and one GenerationResult.

        The call itself raises UsageError for a bad option, PromptError for an empty prompt and
        ContextError for a prompt longer than the context; the iterator raises CapacityError while
        another generation runs and GenerationError when the model's output is not finite.
        """
        check_generation(options)
        self._check_stop_ids(options.stop_token_id)
        if not prompt.token_ids:
            raise PromptError("the prompt is empty; there is nothing to continue")
        capacity = self._runtime.output_capacity(len(prompt.token_ids))
        limit = min(options.max_new, capacity)
        short = FinishReason.CONTEXT_CAPACITY if capacity < options.max_new else None
        return self._stream(prompt, options, limit, short or FinishReason.OUTPUT_LIMIT)

    def _check_stop_ids(self, ids: Iterable[int]) -> None:
        bound = self._model.config.text.addressable
        for token_id in ids:
            if not 0 <= token_id < bound:
                raise UsageError(f"--stop-token-id {token_id}: the model's ids are 0..{bound - 1}")

    def _stream(
        self,
        prompt: PreparedPrompt,
        options: GenerationOptions,
        limit: int,
        at_limit: FinishReason,
    ) -> Generator[GenerationEvent, None, None]:
        rules = StopRules(options.stop_token_id, options.stop, options.reasoning_stop)
        parser = self._model.frontend.new_output_parser(prompt, rules, raw=options.raw_output)
        stop_ids = {*self._model.frontend.stop_ids, *rules.token_ids}
        ids: list[int] = []
        reason = at_limit
        clock = _StepClock()
        params = self.sampling_params(options)
        tokens = self._runtime.generate(prompt.token_ids, params, limit, prompt.media, prompt.runs)
        for token in clock.steps(tokens):
            ids.append(token)
            yield from parser.feed((token,))
            if token in stop_ids:
                reason = FinishReason.STOP_TOKEN
            if token in stop_ids or parser.stop_match is not None:
                break
        yield from parser.finish()
        if parser.stop_match is not None:
            reason = FinishReason.STOP_STRING
        yield GenerationResult(
            finish_reason=reason,
            usage=Usage(len(prompt.token_ids), len(ids), parser.reasoning_tokens),
            token_ids=tuple(ids),
            prefill_seconds=clock.first,
            decode_seconds=clock.later,
        )


class _StepClock:
    """Seconds spent in the runtime, for the first token and for all later ones.

    The time that the consumer of the text takes between steps does not count.
    """

    def __init__(self) -> None:
        self.first = 0.0
        self.later = 0.0

    def steps(self, tokens: Generator[int, None, None]) -> Iterator[int]:
        """The same tokens, timed; closed when the caller stops early."""
        is_first = True
        with closing(tokens):
            while True:
                start = time.perf_counter()
                token = next(tokens, None)
                spent = time.perf_counter() - start
                if token is None:
                    return
                if is_first:
                    self.first += spent
                else:
                    self.later += spent
                is_first = False
                yield token
