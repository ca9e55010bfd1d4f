"""Models: sizes, inventories, forward passes; which op runs when, never who runs next."""

from typing import TYPE_CHECKING

from ninfer.lazy import lazy_exports

if TYPE_CHECKING:
    from ninfer.models.components import components_of
    from ninfer.models.config import ModelConfig, TextConfig
    from ninfer.models.forward_batch import Caches, ForwardBatch, cache_spec
    from ninfer.models.inventory import ResourceSpec, TensorSpec, check_inventory
    from ninfer.models.registry import CONFIG_RESOURCE, REGISTERED, object_specs, resolve_config

__all__ = [
    "CONFIG_RESOURCE",
    "REGISTERED",
    "Caches",
    "ForwardBatch",
    "ModelConfig",
    "ResourceSpec",
    "TensorSpec",
    "TextConfig",
    "cache_spec",
    "check_inventory",
    "components_of",
    "object_specs",
    "resolve_config",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "CONFIG_RESOURCE": "ninfer.models.registry",
        "REGISTERED": "ninfer.models.registry",
        "Caches": "ninfer.models.forward_batch",
        "ForwardBatch": "ninfer.models.forward_batch",
        "ModelConfig": "ninfer.models.config",
        "ResourceSpec": "ninfer.models.inventory",
        "TensorSpec": "ninfer.models.inventory",
        "TextConfig": "ninfer.models.config",
        "cache_spec": "ninfer.models.forward_batch",
        "check_inventory": "ninfer.models.inventory",
        "components_of": "ninfer.models.components",
        "object_specs": "ninfer.models.registry",
        "resolve_config": "ninfer.models.registry",
    },
)
