"""Closed table of model identities, and the configuration and inventory of an opened artifact."""

from collections.abc import Mapping
from typing import Any, Final

from ninfer.artifact.directory import Identity
from ninfer.errors import ConfigError, InventoryError
from ninfer.models.config import ModelConfig, model_config_from_fields
from ninfer.models.inventory import ObjectSpec, ResourceSpec
from ninfer.models.qwen3_6.inventory import inventory
from ninfer.models.qwen3_6.recipe import recipe_for
from ninfer.models.qwen3_6.sizes import DENSE_27B, DENSE_38_27B, MOE_35B

# A v2 directory has no place for sizes, so an artifact of any other geometry carries this resource.
CONFIG_RESOURCE: Final = "model/config.json"

REGISTERED: Final[Mapping[tuple[str, str], ModelConfig]] = {
    ("qwen3.6-27b", "groupwise-int"): DENSE_27B,
    ("qwen3.6-27b", "nvfp4"): DENSE_27B,
    ("qwen3.6-35b-a3b", "groupwise-int"): MOE_35B,
    ("qwen3.8-27b", "groupwise-int"): DENSE_38_27B,
    ("qwen3.8-27b", "nvfp4"): DENSE_38_27B,
}


def is_registered(identity: Identity) -> bool:
    """Whether an identity is that of a published checkpoint, with sizes that are built in."""
    return (identity.model_id, identity.weights_id) in REGISTERED


def resolve_config(identity: Identity, fields: Mapping[str, Any] | None) -> ModelConfig:
    """Sizes of an artifact: built in for a registered identity, else read from `fields`.

    `fields` is the parsed `model/config.json`, or None when the artifact has none. It must name the
    same model id as the directory. Raises InventoryError for an identity without sizes and
    ConfigError for a bad configuration.
    """
    key = (identity.model_id, identity.weights_id)
    if is_registered(identity):
        return REGISTERED[key]
    if fields is None:
        known = ", ".join("/".join(pair) for pair in REGISTERED)
        raise InventoryError(
            f"model {'/'.join(key)!r} is not one this version runs ({known}), and the file has no "
            f"{CONFIG_RESOURCE!r} that would give its sizes"
        )
    if fields.get("model_id") != identity.model_id:
        raise ConfigError(
            f"{CONFIG_RESOURCE} is for model {fields.get('model_id')!r}, the directory says "
            f"{identity.model_id!r}; the file is damaged or mixed"
        )
    return model_config_from_fields(fields)


def object_specs(identity: Identity, config: ModelConfig) -> list[ObjectSpec]:
    """Every object that an artifact of this identity and configuration must hold, in file order."""
    specs = inventory(config, recipe_for(config, identity.weights_id))
    if not is_registered(identity):
        specs.insert(0, ResourceSpec(CONFIG_RESOURCE))
    return specs
