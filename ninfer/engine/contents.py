"""An opened artifact as a model, whatever its framing: sizes, where parameters lie, text files."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ninfer.artifact import Artifact, ModelMap
from ninfer.artifact.directory import Directory, ResourceEntry
from ninfer.errors import ConfigError, InventoryError
from ninfer.json_text import parse_json
from ninfer.log import get_logger
from ninfer.models import (
    CONFIG_RESOURCE,
    ModelConfig,
    check_inventory,
    object_specs,
)
from ninfer.models.components import config_from_components
from ninfer.models.inventory import ObjectSpec
from ninfer.models.parameters import ParameterSpec, ParameterTable, bound_table
from ninfer.models.qwen3_6 import FRONTEND_RESOURCES, recipe_for
from ninfer.models.qwen3_6.parameters import parameter_specs, stored_table
from ninfer.models.registry import is_registered, resolve_config

log = get_logger(__name__)

# Parameters below these are needed by the text model and its draft head.
_REQUIRED = ("text/", "proposal/")


@dataclass(frozen=True, slots=True)
class ModelContents:
    """Sizes, the place of each parameter, and the object of each text resource."""

    config: ModelConfig
    table: ParameterTable
    resources: Mapping[str, str]  # name as in FRONTEND_RESOURCES -> object


def read_contents(artifact: Artifact) -> ModelContents:
    """Configuration, parameters and resources of an opened artifact, all checked.

    v1 and v2 are held to the inventory of their identity, v3 to its own configuration. What belongs
    to optional components and is not known is reported in the log. Raises InventoryError or
    ConfigError naming the object or parameter.
    """
    model_map = artifact.directory.model_map
    if model_map is not None:
        return _from_bindings(artifact, model_map)
    identity = artifact.identity
    registered = is_registered(identity)
    # Registered sizes are built in: a configuration in such a file is an unknown object.
    fields = None if registered else _config_fields(artifact)
    config = resolve_config(identity, fields)
    specs = object_specs(identity, config)
    for name in check_inventory(artifact.directory, specs):
        log.warning("object %r is not known to this version of ninfer; skipped", name)
    if fields is not None:
        _check_order(artifact.directory, specs)
        _check_digests(artifact, fields.get("frontend_sha256"))
    table = stored_table(config, recipe_for(config, artifact.identity.weights_id))
    return ModelContents(config, table, {name: name for name in FRONTEND_RESOURCES})


def _from_bindings(artifact: Artifact, model_map: ModelMap) -> ModelContents:
    config = config_from_components(model_map, artifact.identity.model_id)
    _check_extent(config, len(model_map.bindings))
    specs = parameter_specs(config)
    required = [spec for spec in specs if spec.name.startswith(_REQUIRED)]
    table = dict(bound_table(artifact.directory, required))
    optional = [spec for spec in specs if not spec.name.startswith(_REQUIRED)]
    table.update(_optional_table(artifact, optional))
    _report_unknown(model_map, {spec.name for spec in specs})
    return ModelContents(config, table, dict(_resources(artifact, model_map)))


def _check_extent(config: ModelConfig, bindings: int) -> None:
    """Refuse more experts than the file can possibly bind, before each of them is looked for."""
    text, moe = config.text, config.text.moe
    count = text.layers * (moe.experts if moe else 1)
    if count > bindings:
        raise InventoryError(
            f"component 'text' states {count} layers or experts, but the file binds {bindings}"
            " parameters in all"
        )


def _optional_table(artifact: Artifact, specs: list[ParameterSpec]) -> ParameterTable:
    """Parameters of optional components that are bound as this version expects."""
    assert artifact.directory.model_map is not None
    bound = [spec for spec in specs if spec.name in artifact.directory.model_map.bindings]
    found: dict[str, Any] = {}
    for spec in bound:
        try:
            found.update(bound_table(artifact.directory, [spec]))
        except InventoryError as error:
            log.warning("%s; skipped", error)
    return found


def _report_unknown(model_map: ModelMap, known: set[str]) -> None:
    unknown = [name for name in model_map.bindings if name not in known]
    for name in unknown:
        if name.startswith("text/"):
            raise InventoryError(
                f"parameter {name!r} is not part of this model; nothing may be added under text/"
            )
    for component, count in Counter(name.split("/", 1)[0] for name in unknown).items():
        first = next(name for name in unknown if name.split("/", 1)[0] == component)
        log.warning(
            "%d parameters of %r are not known to this version of ninfer, %r for one; skipped",
            count,
            component,
            first,
        )


def _resources(artifact: Artifact, model_map: ModelMap) -> Iterator[tuple[str, str]]:
    """Text resources by role: the whole file name, or the name without its ending."""
    roles = {
        role: name
        for component in ("vision", "text")
        if component in model_map.components
        for role, name in model_map.components[component].resources.items()
    }
    for wanted in FRONTEND_RESOURCES:
        path = PurePosixPath(wanted)
        for role in (path.name, path.stem):
            if role in roles:
                yield wanted, roles[role]
                break
        else:
            if isinstance(artifact.directory.by_name.get(wanted), ResourceEntry):
                yield wanted, wanted


def _config_fields(artifact: Artifact) -> dict[str, Any] | None:
    if CONFIG_RESOURCE not in artifact.names:
        return None
    fields = parse_json(artifact.resource(CONFIG_RESOURCE), CONFIG_RESOURCE, ConfigError)
    if not isinstance(fields, dict):
        raise ConfigError(f"{CONFIG_RESOURCE} must hold a JSON object")
    return fields


def _check_order(directory: Directory, specs: Sequence[ObjectSpec]) -> None:
    """Objects of files of our own making stand in the order of the inventory.

    A v2 file has no checksum: two names of one shape and format could change places unnoticed.
    """
    wanted = [spec.name for spec in specs]
    known = set(wanted)
    found = [entry.name for entry in directory.entries if entry.name in known]
    for name, expected in zip(found, wanted, strict=True):
        if name != expected:
            raise InventoryError(
                f"object {name!r} stands where {expected!r} belongs; the file is damaged"
            )


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
