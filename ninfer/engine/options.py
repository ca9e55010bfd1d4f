"""What a user may ask of the engine and of one generation: defaults, help and checks."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ninfer.engine.program import ProgramOptions
from ninfer.engine.sizes import size_of
from ninfer.errors import UsageError
from ninfer.log import LEVELS
from ninfer.options import check_choices, flag_of, option, refuse_later
from ninfer.request import REPETITION_BOUNDS, LogitBias, TemplateOptions

KV_DTYPES: Final = ("bf16", "int8", "fp32", "fp8", "nvfp4", "k8v4")
# Bytes of one entry of the recurrent states.
STATE_BYTES: Final = {"fp32": 4, "bf16": 2}
# Positions up to a million keep their accuracy, four times the models' own context.
MOST_STRETCH: Final = 4
# What holds for sampling values that are not given.
PRESET: Final = "the model's preset"
# What --prefix-dir may take unless told otherwise: a handful of long conversations of a 27B model.
PREFIX_DISK_MIB: Final = 32_768
# Weakest first. An effort that a template does not have becomes the nearest that it has.
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What is fixed when the engine starts."""

    artifact: Path  # a file, or the name of an artifact of the package
    max_context: int = option(2048, "tokens one sequence may hold", metavar="N")
    yarn_factor: float | None = option(
        None,
        "stretch the model's context by YaRN so many times, up to 4; moves the answers to short "
        "prompts a little too, so only for prompts that need it",
        metavar="X",
        unset="1, the model's own context",
    )
    max_concurrency: int = option(1, "sequences that may run at once, 1..64", metavar="N")
    kv_capacity: int | None = option(
        None,
        "tokens of KV cache for all sequences together, from --max-context to --max-context times "
        "--max-concurrency; auto: as many of these as fit",
        metavar="N|auto",
        unset="auto",
    )
    memory_margin: str = option(
        "1GiB", "device memory that stays free, for auto and explicit sizes alike", metavar="SIZE"
    )
    prefill_chunk: int = option(1024, "prompt tokens per pass, a multiple of 128", metavar="N")
    device: str = option(
        "auto", "CUDA device number, cpu, or auto: device 0 if there is one", metavar="N|cpu|auto"
    )
    kv_dtype: str = option(
        "bf16",
        "number format of the KV cache",
        choices=KV_DTYPES,
        later=("nvfp4", "k8v4"),
    )
    state_dtype: str = option(
        "fp32",
        "number format of the recurrent states; bf16 halves them and moves the logits",
        choices=tuple(STATE_BYTES),
    )
    backend: str = option(
        "auto",
        "forms of the ops: plain PyTorch, or kernels where this version has them; auto: PyTorch, "
        "until the kernels have passed their checks on a card",
        choices=("auto", "reference", "triton"),
    )
    weights: str = option(
        "auto",
        "weights in memory: as stored, decoded once, or auto: decoded if memory allows",
        choices=("auto", "packed", "decoded"),
    )
    activations: str = option(
        "auto",
        "number format of activations; auto: bf16 on CUDA, fp32 on the CPU",
        choices=("auto", "bf16", "fp32"),
    )
    spec: str | None = option(
        None,
        "speculative decoding: what drafts tokens; never changes them",
        choices=("mtp", "dflash", "dflash2", "lookup"),
    )
    draft_tokens: int | None = option(
        None, "drafts per round: MTP 1..5, others 1..15; needs --spec", metavar="N", unset="all"
    )
    adaptive_drafts: bool = option(
        True, "always try --draft-tokens drafts, also where that has not paid so far"
    )
    lm_head_draft: bool = option(
        False, "draft with the head of the most frequent tokens only; needs --spec"
    )
    prefix_cache_mib: int = option(
        256,
        "memory for the recurrent states of kept prompts; 0 turns prefix reuse off",
        metavar="N",
    )
    prefix_host_mib: int = option(
        0,
        "host memory for kept prompts that had to leave the device; 0 is none, and none of it is "
        "part of the memory plan",
        metavar="N",
    )
    prefix_dir: Path | None = option(
        None,
        "folder where kept prompts outlive the process; it then holds what users wrote",
        metavar="DIR",
        unset="none",
    )
    prefix_disk_mib: int | None = option(
        None,
        "disk space that --prefix-dir may take",
        metavar="N",
        unset=f"{PREFIX_DISK_MIB}",
    )
    reuse_decoded: bool = option(
        False,
        "also keep what decoding computed, not only prefill; a follow-up then starts sooner, and "
        "may get other tokens than it would without",
    )
    max_pending_requests: int = option(16, "requests that may wait for a place", metavar="N")
    pending_timeout_ms: int = option(
        30000, "milliseconds from its arrival in which a request must get a place", metavar="N"
    )
    step_timeout_s: int = option(
        600,
        "seconds after which a step counts as stalled, where an engine serves many callers; 0: no "
        "limit",
        metavar="N",
    )
    vision: bool = option(False, "load the vision tower, to take images and videos")
    media_cache_mib: int = option(
        0, "memory for decoded images and videos that may come again; 0: none", metavar="N"
    )
    cuda_graph: bool = option(True, "every decode step from the host: no rounds, no CUDA graphs")
    cuda_sync: str | None = option(
        None,
        "how the host waits for the device",
        choices=("spin", "blocking", "yield", "auto"),
        later="*",
        unset="as torch does",
        environment="NINFER_CUDA_SYNC",
    )
    chat_template: Path | None = option(
        None, "Jinja chat template file", metavar="FILE", unset="the artifact's own"
    )


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


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the one-shot command line asks besides engine and generation."""

    prompt: str | None = option(None, "text of the user turn", metavar="TEXT")
    messages: Path | None = option(
        None, "JSON file: a message array, or an object with messages and tools", metavar="FILE"
    )
    print_token_ids: bool = option(False, "also print the generated token ids to stderr")
    log_level: str = option("info", "least severe log line to print", choices=LEVELS)


def thinks(options: GenerationOptions) -> bool:
    """Whether the model is to think first; the effort `none` is thinking off by another name."""
    return options.thinking and options.reasoning_effort != "none"


def template_options(options: GenerationOptions) -> TemplateOptions:
    """What a generation's options ask of the chat template."""
    effort = options.reasoning_effort if thinks(options) else None
    return TemplateOptions(enable_thinking=thinks(options), reasoning_effort=effort)


MOST_SEQUENCES: Final = 64
MOST_DRAFTS: Final = {"mtp": 5, "dflash": 15, "dflash2": 15, "lookup": 15}
# More tokens than any vocabulary has.
_MOST_TOKENS: Final = 1 << 30
# More devices than any machine has, in digits.
_DEVICE_DIGITS: Final = 4

_MOST_BIAS: Final = 100.0
MOST_LOGPROBS: Final = 20
_RANGES: Final = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
}


def check_engine(options: EngineOptions) -> None:
    """Check values that need no artifact. Raises UsageError naming the option and the value."""
    refuse_later(options)
    check_sizes(options)


def check_sizes(options: EngineOptions) -> None:
    """The same for a plan, which may ask for what this version cannot run yet."""
    check_choices(options)
    if options.max_context <= 0:
        raise UsageError(f"--max-context {options.max_context}: must be positive")
    factor = options.yarn_factor
    if factor is not None and not 1 <= factor <= MOST_STRETCH:  # NaN is in no range
        raise UsageError(f"--yarn-factor {factor}: must be 1..{MOST_STRETCH}")
    if not 1 <= options.max_concurrency <= MOST_SEQUENCES:
        raise UsageError(
            f"--max-concurrency {options.max_concurrency}: must be 1..{MOST_SEQUENCES}"
        )
    if options.prefill_chunk <= 0 or options.prefill_chunk % 128:
        raise UsageError(f"--prefill-chunk {options.prefill_chunk}: must be a multiple of 128")
    if options.kv_capacity is not None and options.kv_capacity < options.max_context:
        raise UsageError(
            f"--kv-capacity {options.kv_capacity}: must be at least --max-context "
            f"({options.max_context})"
        )
    _check_drafts(options)
    _check_prefix(options)
    if options.max_pending_requests <= 0:
        raise UsageError(f"--max-pending-requests {options.max_pending_requests}: must be positive")
    if options.pending_timeout_ms <= 0:
        raise UsageError(f"--pending-timeout-ms {options.pending_timeout_ms}: must be positive")
    if options.step_timeout_s < 0:
        raise UsageError(f"--step-timeout-s {options.step_timeout_s}: must not be negative")
    size_of("--memory-margin", options.memory_margin)
    is_number = options.device.isdecimal() and len(options.device) <= _DEVICE_DIGITS
    if options.device not in ("auto", "cpu") and not is_number:
        raise UsageError(f"--device {options.device}: must be a device number, cpu or auto")


def _check_drafts(options: EngineOptions) -> None:
    drafts, spec = options.draft_tokens, options.spec
    if spec is None:
        if drafts is not None or options.lm_head_draft:
            raise UsageError("--draft-tokens and --lm-head-draft need --spec")
        return
    if drafts is not None and not 1 <= drafts <= MOST_DRAFTS[spec]:
        raise UsageError(f"--draft-tokens {drafts}: --spec {spec} takes 1..{MOST_DRAFTS[spec]}")


def _check_prefix(options: EngineOptions) -> None:
    for flag, size in (
        ("--prefix-cache-mib", options.prefix_cache_mib),
        ("--prefix-host-mib", options.prefix_host_mib),
        ("--media-cache-mib", options.media_cache_mib),
    ):
        if size < 0:
            raise UsageError(f"{flag} {size}: must not be negative")
    disk = options.prefix_disk_mib
    if disk is not None and options.prefix_dir is None:
        raise UsageError(f"--prefix-disk-mib {disk}: needs --prefix-dir")
    if disk is not None and disk <= 0:
        raise UsageError(f"--prefix-disk-mib {disk}: must be positive; leave --prefix-dir out")
    given = {
        "--prefix-host-mib": options.prefix_host_mib,
        "--prefix-dir": options.prefix_dir,
        "--reuse-decoded": options.reuse_decoded,
    }
    unused = [flag for flag, value in given.items() if value]
    if not options.prefix_cache_mib and unused:
        raise UsageError(
            f"--prefix-cache-mib 0 turns prefix reuse off; leave out {', '.join(unused)}, or give "
            "the cache memory"
        )


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


def check_run(options: RunOptions) -> None:
    """Check that there is exactly one source of messages. Raises UsageError."""
    check_choices(options)
    if (options.prompt is None) == (options.messages is None):
        raise UsageError("give exactly one of --prompt TEXT and --messages FILE")
