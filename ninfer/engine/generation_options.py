"""What a user may ask of one generation: defaults, help and checks."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ninfer.engine.program import ProgramOptions
from ninfer.errors import UsageError
from ninfer.options import check_choices, flag_of, option, refuse_later
from ninfer.request import REPETITION_BOUNDS, LogitBias, TemplateOptions

# What holds for sampling values that are not given.
PRESET: Final = "the model's preset"
# Weakest first. An effort that a template does not have becomes the nearest that it has.
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# More tokens than any vocabulary has.
_MOST_TOKENS: Final = 1 << 30
_MOST_BIAS: Final = 100.0
MOST_LOGPROBS: Final = 20
_RANGES: Final = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
}


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """What one generation asks. None means "not given": the model's preset for the mode holds."""

    max_new: int = option(128, "tokens to generate at most", metavar="N")
    deadline_ms: int | None = option(
        None, "milliseconds after which the answer ends as it is", metavar="N"
    )
    thinking: bool = option(True, "answer without thinking first")
    reasoning_effort: str | None = option(
        None,
        "how long to think, where the chat template offers it; none is --no-thinking",
        choices=EFFORTS,
    )
    thinking_budget: int | None = option(
        None, "tokens of thinking after which the engine closes it", metavar="N"
    )
    greedy: bool = option(False, "take the best token; the same as --temperature 0")
    temperature: float | None = option(None, "0..2; 0 is greedy", metavar="X", unset=PRESET)
    top_p: float | None = option(
        None, "0..1, smallest nucleus to draw from", metavar="X", unset=PRESET
    )
    top_k: int | None = option(
        None, "best tokens to draw from; 0 is all", metavar="N", unset=PRESET
    )
    min_p: float | None = option(
        None, "0..1, least weight relative to the best", metavar="X", unset=PRESET
    )
    presence_penalty: float | None = option(
        None, "-2..2, generated tokens only; greedy has none", metavar="X", unset=PRESET
    )
    frequency_penalty: float | None = option(
        None, "-2..2, generated tokens only; greedy has none", metavar="X", unset=PRESET
    )
    repetition_penalty: float | None = option(
        None,
        "0.01..10, 1 is off; generated tokens only; greedy has none",
        metavar="X",
        unset=PRESET,
    )
    logit_bias: tuple[LogitBias, ...] = option(
        (), "add X, -100..100, to the logit of a token id; repeatable", metavar="ID=X"
    )
    logprobs: int | None = option(
        None,
        "log-probability of each generated token and of this many best ones, 0..20",
        metavar="N",
    )
    prompt_logprobs: int | None = option(
        None, "the same for the prompt, which then reuses no prefix", metavar="N"
    )
    loop_guard: bool = option(
        False, "end an answer that repeats the same 1..256 tokens over and over"
    )
    seed: int = option(0, "same seed and request, same tokens", metavar="N")
    stop_token_id: tuple[int, ...] = option((), "end at this token id; repeatable", metavar="ID")
    stop: tuple[str, ...] = option((), "end the answer at this text; repeatable", metavar="TEXT")
    reasoning_stop: tuple[str, ...] = option(
        (), "end at this text while thinking; repeatable", metavar="TEXT"
    )
    raw_output: bool = option(False, "show all text as it comes, thinking and tags included")
    json: bool = option(False, "answer with one JSON object")
    json_schema: Path | None = option(None, "answer with JSON of this schema", metavar="FILE")
    program: ProgramOptions = field(default_factory=ProgramOptions)


def thinks(options: GenerationOptions) -> bool:
    """Whether the model is to think first; the effort `none` is thinking off by another name."""
    return options.thinking and options.reasoning_effort != "none"


def template_options(options: GenerationOptions) -> TemplateOptions:
    """What a generation's options ask of the chat template."""
    effort = options.reasoning_effort if thinks(options) else None
    return TemplateOptions(enable_thinking=thinks(options), reasoning_effort=effort)


def check_generation(options: GenerationOptions) -> None:
    """Check one generation's values. Raises UsageError naming the option and the value."""
    refuse_later(options)
    check_choices(options)
    if options.max_new <= 0:
        raise UsageError(f"--max-new {options.max_new}: must be positive")
    if options.deadline_ms is not None and options.deadline_ms <= 0:
        raise UsageError(f"--deadline-ms {options.deadline_ms}: must be positive")
    for name, (low, high) in _RANGES.items():
        value = getattr(options, name)
        # Written so that NaN is outside too.
        if value is not None and not low <= value <= high:
            raise UsageError(f"{flag_of(name, None)} {value}: must be between {low:g} and {high:g}")
    if options.thinking_budget is not None and options.thinking_budget < 0:
        raise UsageError(f"--thinking-budget {options.thinking_budget}: must not be negative")
    _check_logits(options)
    if options.top_k is not None and not 0 <= options.top_k <= _MOST_TOKENS:
        raise UsageError(f"--top-k {options.top_k}: must be between 0 (all) and {_MOST_TOKENS}")
    if not 0 <= options.seed < 2**64:
        raise UsageError(f"--seed {options.seed}: must be between 0 and 2^64 - 1")
    if options.greedy and options.temperature:
        raise UsageError(f"--greedy contradicts --temperature {options.temperature:g}; give one")
    own = options.program
    shaped = own.constraint is not None or options.json or options.json_schema is not None
    if shaped and (own.min_tokens or own.ignore_stops):
        raise UsageError(
            "an answer of a given form ends with the form; leave out min_tokens and ignore_eos"
        )
    if own.min_tokens < 0:
        raise UsageError(f"min_tokens {own.min_tokens}: must not be negative")
    if options.json and options.json_schema is not None:
        raise UsageError("--json and --json-schema contradict each other; give one")
    if any(not text for text in (*options.stop, *options.reasoning_stop)):
        raise UsageError("--stop and --reasoning-stop need a text that is not empty")
    if options.raw_output and options.reasoning_stop:
        raise UsageError(
            "--reasoning-stop has no effect with --raw-output, which does not tell thinking from "
            "the answer; use --stop"
        )


def _check_logits(options: GenerationOptions) -> None:
    repetition, (least, most) = options.repetition_penalty, REPETITION_BOUNDS
    if repetition is not None and not least <= repetition <= most:
        raise UsageError(
            f"--repetition-penalty {repetition}: must be between {least:g} and {most:g}; 1 is none"
        )
    for name in ("logprobs", "prompt_logprobs"):
        count = getattr(options, name)
        if count is not None and not 0 <= count <= MOST_LOGPROBS:
            raise UsageError(f"{flag_of(name, None)} {count}: must be 0..{MOST_LOGPROBS}")
    seen: set[int] = set()
    for bias in options.logit_bias:
        given = f"--logit-bias {bias.token_id}={bias.value:g}"
        if not -_MOST_BIAS <= bias.value <= _MOST_BIAS:
            raise UsageError(f"{given}: must be between -{_MOST_BIAS:g} and {_MOST_BIAS:g}")
        if bias.token_id in seen:
            raise UsageError(f"{given}: the id has a bias already; give it once")
        seen.add(bias.token_id)
