"""Published artifacts as a plan sees them, from their built-in sizes: no file is needed."""

from typing import Final

from ninfer.artifact import Directory, Identity, ResourceSpec, TensorSpec, plan_directory
from ninfer.artifact.published import PUBLISHED, find_published
from ninfer.engine.contents import ModelContents
from ninfer.engine.plan import model_sizes
from ninfer.models import TensorSpec as TensorWanted
from ninfer.models import object_specs, resolve_config
from ninfer.models.qwen3_6 import recipe_for
from ninfer.models.qwen3_6.parameters import stored_table
from ninfer.runtime.memory_plan import ModelSizes

# The published tokenizer is about this long; the other resources are shorter.
RESOURCE_BYTES: Final = 12_000_000
# Alias -> identity, in the order of publication.
IDENTITIES: Final = {
    item.alias: Identity(*item.id.split("/", 1))
    for item in PUBLISHED  # every revision of an artifact has the same
}


def full_directory(identity: Identity) -> Directory:
    """The directory of a whole registered artifact in framing v2; resources have a stand-in size.

    Raises InventoryError for an identity that is not registered.
    """
    wanted = object_specs(identity, resolve_config(identity, None))
    specs = [
        TensorSpec(spec.name, spec.shape, spec.format)
        if isinstance(spec, TensorWanted)
        else ResourceSpec(spec.name, RESOURCE_BYTES)
        for spec in wanted
    ]
    return plan_directory(identity, specs)


def registered_sizes(identity: Identity) -> ModelSizes:
    """Sizes and weights of a registered artifact; what framing v3 adds to one is not counted."""
    config = resolve_config(identity, None)
    table = stored_table(config, recipe_for(config, identity.weights_id))
    return model_sizes(full_directory(identity), ModelContents(config, table, {}))


def identity_of(name: str) -> Identity:
    """The identity of a published artifact's alias or id. Raises UsageError for an unknown one."""
    return IDENTITIES[find_published(name)[0].alias]
