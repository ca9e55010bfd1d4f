"""Artifact to model: configuration, strict inventory, checks, weights on the device."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ninfer.artifact import Artifact, open_artifact
from ninfer.engine.options import EngineOptions
from ninfer.engine.residency import Progress, Residency, weight_source
from ninfer.errors import ConfigError, InventoryError, PayloadError, UsageError
from ninfer.frontend import Frontend
from ninfer.log import get_logger
from ninfer.models import CONFIG_RESOURCE, ModelConfig, check_inventory, object_specs
from ninfer.models.qwen3_6 import (
    FRONTEND_RESOURCES,
    TextWeights,
    bind_text,
    recipe_for,
)
from ninfer.models.registry import resolve_config

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, and the text side that belongs to it."""

    config: ModelConfig
    weights: TextWeights
    frontend: Frontend


def read_config(artifact: Artifact) -> ModelConfig:
    """Configuration of an opened artifact, its whole inventory checked against it.

    Extra objects of optional components are reported in the log. Raises InventoryError or
    ConfigError naming the object.
    """
    fields = _config_fields(artifact)
    config = resolve_config(artifact.identity, fields)
    specs = object_specs(artifact.identity, config)
    for name in check_inventory(artifact.directory, specs):
        log.warning("object %r is not known to this version of ninfer; skipped", name)
    if fields is not None:
        _check_digests(artifact, fields.get("frontend_sha256"))
    return config


def _config_fields(artifact: Artifact) -> dict[str, Any] | None:
    if CONFIG_RESOURCE not in artifact.names:
        return None
    try:
        fields = json.loads(artifact.resource(CONFIG_RESOURCE))
    except ValueError as error:
        raise ConfigError(f"{CONFIG_RESOURCE} is not JSON text: {error}") from error
    if not isinstance(fields, dict):
        raise ConfigError(f"{CONFIG_RESOURCE} must hold a JSON object")
    return fields


def _check_digests(artifact: Artifact, digests: object) -> None:
    """A v2 file has no checksum, so files of our own making state those of their text resources."""
    if not isinstance(digests, dict) or set(digests) != set(FRONTEND_RESOURCES):
        raise ConfigError(
            f"{CONFIG_RESOURCE} must give frontend_sha256 for each of the frontend resources"
        )
    for name, expected in digests.items():
        found = hashlib.sha256(artifact.resource(name)).hexdigest()
        if found != expected:
            raise InventoryError(f"{name} has SHA-256 {found}, not {expected}; the file is damaged")


def load_model(
    options: EngineOptions, residency: Callable[[ModelConfig], Residency], progress: Progress
) -> LoadedModel:
    """Open, check and bind. Raises ArtifactError or ConfigError that names what is wrong."""
    override = _template_override(options.chat_template)
    artifact = open_artifact(options.artifact)
    config = read_config(artifact)
    frontend = Frontend.from_resources(
        {name: artifact.resource(name) for name in FRONTEND_RESOURCES}, chat_template=override
    )
    _check_vocabulary(frontend, config)
    _check_draft_ids(artifact, config)
    source = weight_source(artifact, residency(config), progress)
    weights = bind_text(source, config, recipe_for(config, artifact.identity.weights_id))
    return LoadedModel(config, weights, frontend)


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


def _check_draft_ids(artifact: Artifact, config: ModelConfig) -> None:
    if not config.draft_head_rows:
        return
    ids = artifact.tensor("text/draft_head_token_ids")
    assert isinstance(ids, Tensor)
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= config.text.addressable:
        raise PayloadError(
            f"text/draft_head_token_ids holds id {low if low < 0 else high}, outside "
            f"0..{config.text.addressable - 1}"
        )
    if ids.unique().numel() != ids.numel():
        raise PayloadError("text/draft_head_token_ids holds an id twice")
