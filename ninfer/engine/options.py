"""What a user may ask of the engine, of a plan and of one run: defaults, help and checks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ninfer.engine.sizes import size_of
from ninfer.errors import UsageError
from ninfer.log import LEVELS
from ninfer.options import check_choices, option, refuse_later

KV_DTYPES: Final = ("bf16", "int8", "fp32", "fp8", "int4", "nvfp4", "k8v4")
# Bytes of one entry of the recurrent states.
STATE_BYTES: Final = {"fp32": 4, "bf16": 2}
# Positions up to a million keep their accuracy, four times the models' own context.
MOST_STRETCH: Final = 4
# What --prefix-dir may take unless told otherwise: a handful of long conversations of a 27B model.
PREFIX_DISK_MIB: Final = 32_768


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
    host_vision: bool = option(
        False,
        "keep the vision tower in host memory; each picture brings it to the device part by part",
    )
    host_embeddings: bool = option(
        False,
        "keep the table of embeddings in host memory; then every decode step runs from the host, "
        "without rounds and CUDA graphs",
    )
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
class RunOptions:
    """What the one-shot command line asks besides engine and generation."""

    prompt: str | None = option(None, "text of the user turn", metavar="TEXT")
    messages: Path | None = option(
        None, "JSON file: a message array, or an object with messages and tools", metavar="FILE"
    )
    print_token_ids: bool = option(False, "also print the generated token ids to stderr")
    log_level: str = option("info", "least severe log line to print", choices=LEVELS)


MOST_SEQUENCES: Final = 64
MOST_DRAFTS: Final = {"mtp": 5, "dflash": 15, "dflash2": 15, "lookup": 15}
# More devices than any machine has, in digits.
_DEVICE_DIGITS: Final = 4


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
    if options.host_vision and not options.vision:
        raise UsageError("--host-vision: needs --vision")
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


def check_run(options: RunOptions) -> None:
    """Check that there is exactly one source of messages. Raises UsageError."""
    check_choices(options)
    if (options.prompt is None) == (options.messages is None):
        raise UsageError("give exactly one of --prompt TEXT and --messages FILE")
