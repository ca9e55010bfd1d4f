"""The engine's options as a memory plan: what fits, what gave way, what is missing and what helps.

Nothing is loaded for it. The engine's start and `ninfer plan` use the same plan and the same words.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from ninfer.artifact import Directory
from ninfer.artifact.directory import TensorEntry
from ninfer.engine.contents import ModelContents
from ninfer.engine.options import MOST_DRAFTS, STATE_BYTES, EngineOptions
from ninfer.engine.sizes import size_of
from ninfer.errors import UnsupportedError, UsageError
from ninfer.formats.registry import KV_FORMATS
from ninfer.models.qwen3_6.vision_weights import part_of_tower
from ninfer.runtime.config import PAGE_SIZE, pages_for
from ninfer.runtime.memory_plan import (
    DRAFTERS,
    Demand,
    MemoryPlan,
    ModelSizes,
    WeightBytes,
    component_bytes,
    plan_memory,
    weight_bytes,
)

EMBEDDING: Final = "text/token_embedding"
_EXPERTS: Final = "text/experts"
_TOWER: Final = "vision/"
# Contexts are suggested in steps that people ask for.
_CONTEXT_STEP: Final = 1024
_LEAST_CHUNK: Final = 128
# What a user would do, and the options that come of it.
_Change = tuple[str, dict[str, Any]]
NOTHING_FITS: Final = "no options make it fit, take a smaller model or a larger device"


def model_sizes(directory: Directory, contents: ModelContents) -> ModelSizes:
    """What a plan needs to know of an opened artifact: no more than its directory tells."""
    groups: dict[str, set[str]] = {}
    for name, pieces in contents.table.items():
        for group in _groups(name):
            groups.setdefault(group, set()).update(piece.object for piece in pieces)

    def size(group: str) -> WeightBytes:
        entries = (directory.by_name[name] for name in groups.get(group, ()))
        return weight_bytes(e for e in entries if isinstance(e, TensorEntry))

    parts = [size(group) for group in groups if group.startswith(_TOWER)]
    return ModelSizes(
        contents.config,
        {group: size(group) for group in groups if "/" not in group},
        embedding=size(EMBEDDING),
        experts=size(_EXPERTS),
        tower_part=max(parts, key=lambda part: part.packed + part.narrow_values, default=size("")),
    )


def _groups(name: str) -> Iterator[str]:
    """Groups that a parameter is counted in: its component, and parts of it that may lie apart."""
    component = name.split("/", 1)[0]
    yield component
    if name == EMBEDDING:
        yield EMBEDDING
    if "/moe/experts/" in name and component == "text":
        yield _EXPERTS
    if component == "vision":
        yield part_of_tower(name)


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """The plan of some options, and the options it is for."""

    options: EngineOptions
    demand: Demand
    memory: MemoryPlan

    @property
    def announcement(self) -> str | None:
        """What gave way to fit, in one line; None when nothing did."""
        plan = self.memory
        if plan.pages >= plan.pages_wanted:
            return None
        full = plan.tokens // (pages_for(self.options.max_context) * PAGE_SIZE)
        return (
            f"--kv-capacity auto: {plan.tokens:,} tokens in place of {plan.tokens_wanted:,}; "
            f"{full} of {self.options.max_concurrency} sequences can have --max-context "
            f"{self.options.max_context} tokens at the same time"
        )

    @property
    def shortage(self) -> str:
        """By how much it does not fit, in one line."""
        plan = self.memory
        return (
            f"--max-context {self.options.max_context}: {plan.total:,} bytes are needed, "
            f"{plan.memory:,} are free and {plan.margin:,} of them stay free (--memory-margin); "
            f"{plan.missing:,} bytes are missing"
        )


def plan_engine(
    options: EngineOptions, model: ModelSizes, memory: int, activation_bytes: int
) -> EnginePlan:
    """Plan `memory` bytes for a model; whether it fits is in the result.

    `--weights auto` decodes when the decoded weights take at most half of the memory and nothing
    has to give way for them: the reference ops otherwise decode each matrix again in every pass.
    Raises UsageError naming an option that does not suit the model.
    """
    _check_model(options, model)
    plans = [
        _plan(options, model, memory, activation_bytes, decoded=decoded)
        for decoded in (True, False)
        if options.weights in ("auto", "decoded" if decoded else "packed")
    ]
    return next((plan for plan in plans if _is_affordable(plan, model)), plans[-1])


def _check_model(options: EngineOptions, model: ModelSizes) -> None:
    native = model.config.text.context
    if options.max_context > native:
        raise UsageError(
            f"--max-context {options.max_context}: the model's limit is {native}; --yarn-factor "
            "raises it"
        )
    most = options.max_concurrency * pages_for(options.max_context) * PAGE_SIZE
    if options.kv_capacity is not None and options.kv_capacity > most:
        raise UsageError(
            f"--kv-capacity {options.kv_capacity}: --max-concurrency {options.max_concurrency} and "
            f"--max-context {options.max_context} can use at most {most} tokens"
        )
    if options.kv_dtype not in KV_FORMATS:
        raise UnsupportedError(
            f"--kv-dtype {options.kv_dtype}: not available in this version of ninfer"
        )
    if options.vision and "vision" not in model.weights:
        raise UsageError("--vision: this artifact has no vision tower; leave the option out")
    if options.spec not in (None, "lookup") and options.spec not in model.weights:
        found = ", ".join(name for name in DRAFTERS if name in model.weights) or "none"
        raise UsageError(f"--spec {options.spec}: the drafters of this artifact are: {found}")
    if options.lm_head_draft and "proposal" not in model.weights:
        raise UsageError("--lm-head-draft: this artifact has no draft head; leave the option out")


def _plan(
    options: EngineOptions, model: ModelSizes, memory: int, activation_bytes: int, *, decoded: bool
) -> EnginePlan:
    drafts = (options.draft_tokens or MOST_DRAFTS[options.spec]) if options.spec else 0
    wanted = {
        "text": True,
        "proposal": options.lm_head_draft,
        options.spec or "": options.spec in model.weights,
        "vision": options.vision,
    }
    demand = Demand(
        components=tuple(name for name, asked in wanted.items() if asked),
        max_context=options.max_context,
        sequences=options.max_concurrency,
        capacity=options.kv_capacity,
        kv_format=options.kv_dtype,
        activation_bytes=activation_bytes,
        decoded=decoded,
        prefill_chunk=options.prefill_chunk,
        window=1 + drafts,
        matrix_bytes=STATE_BYTES[options.state_dtype],
        snapshot_bytes=options.prefix_cache_mib << 20,
        rounds=has_rounds(options),
        graphs=has_rounds(options) and options.backend == "triton",
        host_embedding=options.host_embeddings,
        host_vision=options.host_vision,
    )
    margin = size_of("--memory-margin", options.memory_margin)
    return EnginePlan(options, demand, plan_memory(model, demand, memory, margin))


def has_rounds(options: EngineOptions) -> bool:
    """Whether decode rounds run on the device.

    What decoding computed is kept at page borders, which a round may cross: `--reuse-decoded` has
    none. Nor has `--host-embeddings`, for which the host must know the ids.
    """
    return options.cuda_graph and not (options.reuse_decoded or options.host_embeddings)


def _is_affordable(plan: EnginePlan, model: ModelSizes) -> bool:
    demand = plan.demand
    weights = sum(component_bytes(model, demand, name) for name in demand.components)
    return weights <= plan.memory.memory // 2 and plan.memory.fits and plan.announcement is None


def remedies(plan: EnginePlan, model: ModelSizes) -> list[str]:
    """Ways to make it fit, each a change of options; those that belong together have a plus.

    Empty when no options fit.
    """

    def fits(options: EngineOptions) -> bool:
        tried = plan_engine(options, model, plan.memory.memory, plan.demand.activation_bytes)
        return tried.memory.fits

    options, changes = plan.options, list(_changes(plan.options))
    found = [text for text, change in changes if fits(replace(options, **change))]
    if not found:
        found = _together(options, changes, fits)
    found += [*_fewer(options, fits), *_less_margin(plan.memory)]
    if found:
        return found
    if options.max_concurrency > 1:
        changes.append(("--max-concurrency 1", {"max_concurrency": 1, "kv_capacity": None}))
    texts = [text for text, _ in changes]
    return [" + ".join([*texts, last]) for last in _fewer(_changed(options, changes), fits)]


def _together(
    options: EngineOptions, changes: list[_Change], fits: Callable[[EngineOptions], bool]
) -> list[str]:
    """The fewest of the first changes that fit together."""
    needed: list[_Change] = []
    for count in range(len(changes) + 1):
        needed = changes[:count]
        if fits(_changed(options, needed)):
            break
    else:
        return []
    for change in list(needed):
        rest = [other for other in needed if other is not change]
        if fits(_changed(options, rest)):
            needed = rest
    return [" + ".join(text for text, _ in needed)]


def _changed(options: EngineOptions, changes: Iterable[_Change]) -> EngineOptions:
    for _, change in changes:
        options = replace(options, **change)
    return options


def refusal(plan: EnginePlan, model: ModelSizes) -> str:
    """One line that says by how much a plan misses and what would fit."""
    found = remedies(plan, model)
    return f"{plan.shortage}; {'would fit: ' + ', or '.join(found) if found else NOTHING_FITS}"


def _changes(options: EngineOptions) -> Iterator[_Change]:
    """What could be given up, the least painful first."""
    if options.weights == "decoded":
        yield "--weights packed", {"weights": "packed"}
    if options.kv_dtype != "int8":
        yield "--kv-dtype int8", {"kv_dtype": "int8"}
    if options.kv_capacity is not None:
        yield "--kv-capacity auto", {"kv_capacity": None}
    if options.vision and not options.host_vision:
        yield "--host-vision", {"host_vision": True}
    if options.vision:
        yield "no --vision", {"vision": False, "host_vision": False}
    if options.lm_head_draft:
        yield "no --lm-head-draft", {"lm_head_draft": False}
    if options.prefix_cache_mib:
        yield "--prefix-cache-mib 0", {"prefix_cache_mib": 0}
    if options.spec:
        given_up = {"spec": None, "draft_tokens": None, "lm_head_draft": False}
        yield f"no --spec {options.spec}", given_up
    if not options.host_embeddings:
        yield "--host-embeddings", {"host_embeddings": True}
    if options.prefill_chunk > _LEAST_CHUNK:
        yield f"--prefill-chunk {_LEAST_CHUNK}", {"prefill_chunk": _LEAST_CHUNK}


def _fewer(options: EngineOptions, fits: Callable[[EngineOptions], bool]) -> list[str]:
    """The most sequences of that context, and the longest context of that many, that fit."""
    free = replace(options, kv_capacity=None)
    auto = "" if options.kv_capacity is None else " --kv-capacity auto"
    sequences = _largest(
        options.max_concurrency - 1, lambda n: fits(replace(free, max_concurrency=n))
    )
    steps = _largest(
        (options.max_context - 1) // _CONTEXT_STEP,
        lambda n: fits(replace(free, max_context=n * _CONTEXT_STEP)),
    )
    found = [f"--max-concurrency {sequences}{auto}"] if sequences else []
    return found + ([f"--max-context {steps * _CONTEXT_STEP}{auto}"] if steps else [])


def _largest(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest of 1..limit that fits, 0 for none; what is smaller than a fitting one fits."""
    low = 0
    while low < limit:
        middle = (low + limit + 1) // 2
        low, limit = (middle, limit) if fits(middle) else (low, middle - 1)
    return low


def _less_margin(plan: MemoryPlan) -> list[str]:
    if plan.missing > plan.margin:
        return []
    return [f"--memory-margin {(plan.margin - plan.missing) >> 20}MiB"]
