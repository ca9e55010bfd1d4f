"""From --spec to a running proposer: which drafter is read from the artifact and how it drafts."""

from dataclasses import dataclass

from ninfer.engine.options import EngineOptions
from ninfer.models import ModelConfig
from ninfer.models.parameters import ParameterTable
from ninfer.models.qwen3_6 import TextWeights, WeightSource
from ninfer.models.qwen3_6.block_weights import BlockDrafterWeights
from ninfer.models.qwen3_6.dflash import bind_dflash
from ninfer.models.qwen3_6.dflash2 import Dflash2Weights, bind_dflash2
from ninfer.models.qwen3_6.mtp import MtpWeights, bind_mtp
from ninfer.models.qwen3_6.proposal import ProposalHead, bind_draft_head, full_head
from ninfer.models.qwen3_6.recipe import Recipe
from ninfer.runtime import RuntimeConfig
from ninfer.runtime.sampler import draw_uniform
from ninfer.runtime.speculative import (
    AdaptiveWindow,
    BlockProposer,
    CombinedProposer,
    LookupProposer,
    MtpProposer,
    Proposer,
    Speculation,
    best_tokens,
    drafter_caches,
    tempered,
    untempered,
    walk,
)

Drafter = MtpWeights | BlockDrafterWeights | Dflash2Weights


@dataclass(frozen=True, slots=True)
class DrafterModel:
    """A loaded drafter and the head that its drafts are read from; None: the model's own."""

    weights: Drafter
    head: ProposalHead | None


def drafter_prefixes(options: EngineOptions) -> tuple[str, ...]:
    """Parameter prefixes that the options need beside the text model's."""
    if options.spec is None or options.spec == "lookup":
        return ()
    return (f"{options.spec}/", *(("proposal/",) if options.lm_head_draft else ()))


def bind_drafter(
    options: EngineOptions,
    source: WeightSource,
    config: ModelConfig,
    table: Recipe | ParameterTable,
) -> DrafterModel | None:
    """Read the drafter that the options ask for; None when they ask for none with weights."""
    if not drafter_prefixes(options):
        return None
    head = bind_draft_head(source, config, table) if options.lm_head_draft else None
    if options.spec == "mtp":
        return DrafterModel(bind_mtp(source, config, table), head)
    if options.spec == "dflash":
        return DrafterModel(bind_dflash(source, config, table), head)
    return DrafterModel(bind_dflash2(source, config, table), head)


def build_speculation(
    options: EngineOptions,
    config: ModelConfig,
    runtime: RuntimeConfig,
    target: TextWeights,
    drafter: DrafterModel | None,
) -> Speculation | None:
    """The proposer of the options, with its KV caches; None without --spec.

    A model drafter gives way to prompt lookup where the text repeats itself at length.
    """
    if options.spec is None:
        return None
    proposer: Proposer = LookupProposer()
    if drafter is not None:
        model = _model_proposer(config, runtime, target, drafter)
        proposer = CombinedProposer(model, LookupProposer())
    return Speculation(proposer, AdaptiveWindow() if options.adaptive_drafts else None)


def _model_proposer(
    config: ModelConfig, runtime: RuntimeConfig, target: TextWeights, drafter: DrafterModel
) -> Proposer:
    head = drafter.head or full_head(target.head, config.text.addressable)
    weights = drafter.weights
    if isinstance(weights, MtpWeights):
        (cache,) = drafter_caches("mtp", config, runtime)
        return MtpProposer(weights, target, config.text, head, cache)
    if isinstance(weights, Dflash2Weights):
        assert config.dflash2 is not None
        top_k = config.dflash2.selector_top_k
        return BlockProposer(
            weights.drafter,
            config.dflash2,
            target.embedding,
            drafter_caches("dflash2", config, runtime),
            walk(weights.selector, head, top_k, draw_uniform),
            dtype=runtime.dtype,
            tempered=tempered(weights.selector, head, top_k),
        )
    assert config.dflash is not None
    return BlockProposer(
        weights,
        config.dflash,
        target.embedding,
        drafter_caches("dflash", config, runtime),
        best_tokens(head),
        dtype=runtime.dtype,
        tempered=untempered(head),
    )
