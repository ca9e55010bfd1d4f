"""Artifact to model: configuration, strict inventory, checks, weights on the device."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ninfer.artifact import Artifact, Identity, open_artifact
from ninfer.artifact.fingerprint import fingerprint
from ninfer.artifact.packaged import locate
from ninfer.engine.contents import ModelContents, read_contents
from ninfer.engine.options import EngineOptions
from ninfer.engine.plan import EMBEDDING, model_sizes
from ninfer.engine.residency import Progress, Residency, weight_source
from ninfer.engine.speculation import DrafterModel, bind_drafter, drafter_prefixes
from ninfer.errors import InventoryError, UsageError
from ninfer.frontend import Frontend
from ninfer.models import ModelConfig
from ninfer.models.components import with_addressable
from ninfer.models.config import stretched
from ninfer.models.qwen3_6 import (
    TextWeights,
    VisionWeights,
    bind_text,
    bind_vision,
    sampling_preset,
)
from ninfer.models.qwen3_6.parameters import parameter_specs
from ninfer.models.qwen3_6.vision_weights import VISION_PREFIX
from ninfer.models.qwen3_6.weights import TEXT_PREFIX
from ninfer.models.registry import is_registered
from ninfer.models.values import check_divisors, check_draft_ids
from ninfer.request import SamplingParams
from ninfer.runtime.memory_plan import ModelSizes


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, and the text side that belongs to it."""

    config: ModelConfig
    weights: TextWeights
    frontend: Frontend
    vision: VisionWeights | None = None
    drafter: DrafterModel | None = None
    identity: Identity | None = None
    fingerprint: str = ""  # of the file, where something kept on disk depends on it

    def sampling(self, *, thinking: bool) -> SamplingParams:
        """The preset: that of the authors for a registered model, else that of the model's files.

        The recommendations for large models do not suit a small one of the same shape.
        """
        if self.identity is None or not is_registered(self.identity):
            return self.frontend.sampling
        return sampling_preset(self.config, thinking=thinking)


def read_config(artifact: Artifact) -> ModelConfig:
    """Configuration of an opened artifact, everything that it must hold checked; see ModelContents.

    Raises InventoryError or ConfigError naming the object or parameter.
    """
    return read_contents(artifact).config


def load_model(
    options: EngineOptions, residency: Callable[[ModelSizes], Residency], progress: Progress
) -> LoadedModel:
    """Open, check and bind. Raises ArtifactError or ConfigError that names what is wrong.

    `residency` is asked once, before any weight is read.
    """
    override = _template_override(options.chat_template)
    artifact = open_artifact(locate(options.artifact))
    contents, frontend = read_model(
        artifact,
        chat_template=override,
        vision=options.vision,
        media_cache=options.media_cache_mib << 20,
    )
    config = stretched(contents.config, options.yarn_factor)
    contents = replace(contents, config=config)
    objects = _objects(contents, TEXT_PREFIX)
    if options.vision:
        objects |= _objects(contents, VISION_PREFIX)
    for prefix in drafter_prefixes(options):
        objects |= _drafter_objects(contents, options, prefix)
    sizes = model_sizes(artifact.directory, contents)
    on_host = _host_objects(options, contents)
    source = weight_source(artifact, objects, residency(sizes), progress, host=on_host)
    table = contents.table
    weights = bind_text(source, config, table, host_embedding=options.host_embeddings)
    tower = None
    if options.vision:
        tower = bind_vision(source, config, table, on_host=options.host_vision)
    drafter = bind_drafter(options, source, config, contents.table)
    mark = "" if options.prefix_dir is None else fingerprint(artifact)
    return LoadedModel(config, weights, frontend, tower, drafter, artifact.identity, mark)


def read_model(
    artifact: Artifact,
    *,
    chat_template: str | None = None,
    vision: bool = False,
    media_cache: int = 0,
) -> tuple[ModelContents, Frontend]:
    """All of a model but its weights: contents and text side, checked against each other.

    `vision` readies the text side for images and videos, of which it keeps `media_cache` bytes.
    Raises InventoryError, ConfigError or
    PayloadError naming the object, PromptError for a template that cannot be used, UsageError for
    `vision` of a model without a tower.
    """
    contents = read_contents(artifact)
    if vision:
        _check_tower(contents)
    frontend = Frontend.from_resources(
        {name: artifact.resource(stored) for name, stored in contents.resources.items()},
        chat_template=chat_template,
        vision=vision,
        media_cache=media_cache,
    )
    config = contents.config
    _check_patches(frontend, config)
    if artifact.framing == 3:
        config = with_addressable(config, frontend.tokenizer.addressable)
    _check_vocabulary(frontend, config)
    check_draft_ids(artifact, contents.table, config)
    check_divisors(artifact)
    return replace(contents, config=config), frontend


def _objects(contents: ModelContents, prefix: str) -> set[str]:
    """Names of the stored objects in which parameters below `prefix` lie."""
    return {
        piece.object
        for name, pieces in contents.table.items()
        if name.startswith(prefix)
        for piece in pieces
    }


def _host_objects(options: EngineOptions, contents: ModelContents) -> set[str]:
    """Objects that stay in host memory. Raises UsageError where other parts need one of them."""
    prefixes = {EMBEDDING: options.host_embeddings, VISION_PREFIX: options.host_vision}
    kept = tuple(prefix for prefix, asked in prefixes.items() if asked)
    found = {name for prefix in kept for name in _objects(contents, prefix)}
    for name, pieces in contents.table.items():
        shared = found & {piece.object for piece in pieces}
        if shared and not name.startswith(kept):
            flag = "--host-embeddings" if options.host_embeddings else "--host-vision"
            raise UsageError(
                f"{flag}: object {min(shared)!r} of this artifact also holds {name!r}; leave the "
                "option out"
            )
    return found


def _drafter_objects(contents: ModelContents, options: EngineOptions, prefix: str) -> set[str]:
    objects = _objects(contents, prefix)
    if not objects:
        flag = "--lm-head-draft" if prefix == "proposal/" else f"--spec {options.spec}"
        raise UsageError(f"{flag}: this artifact holds nothing below {prefix}; leave it out")
    return objects


def _check_tower(contents: ModelContents) -> None:
    if contents.config.vision is None:
        raise UsageError("--vision: this artifact has no vision tower; leave the option out")
    for spec in parameter_specs(contents.config):
        if spec.name.startswith(VISION_PREFIX) and spec.name not in contents.table:
            raise InventoryError(f"--vision: the artifact does not hold parameter {spec.name!r}")


def _check_patches(frontend: Frontend, config: ModelConfig) -> None:
    if frontend.media is None:
        return
    assert config.vision is not None
    tower, image = config.vision, frontend.media.image
    expected = (tower.patch, tower.temporal_patch, tower.merge)
    if (image.patch, image.temporal, image.merge) != expected:
        found = (image.patch, image.temporal, image.merge)
        raise InventoryError(
            "frontend/preprocessor_config.json has patch, temporal patch and merge size "
            f"{found}, the vision tower {expected}"
        )


def _template_override(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"--chat-template {path}: {reason}") from error


def _check_vocabulary(frontend: Frontend, config: ModelConfig) -> None:
    tokens, rows = frontend.tokenizer.addressable, config.text.addressable
    if tokens > rows:
        raise InventoryError(
            f"frontend/tokenizer.json has ids up to {tokens - 1}, the model addresses {rows} ids"
        )
