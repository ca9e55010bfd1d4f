"""Published artifacts as a plan sees them, from their built-in sizes: no file is needed."""

from functools import cache
from pathlib import Path
from typing import Final

from ninfer.artifact import (
    Directory,
    Identity,
    ResourceSpec,
    TensorSpec,
    open_artifact,
    plan_directory,
)
from ninfer.artifact.packaged import locate
from ninfer.artifact.published import ALIASES, PUBLISHED, find_published
from ninfer.engine.contents import ModelContents, read_contents
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


@cache
def registered_sizes(identity: Identity) -> ModelSizes:
    """Sizes and weights of a registered artifact; what framing v3 adds to one is not counted."""
    config = resolve_config(identity, None)
    table = stored_table(config, recipe_for(config, identity.weights_id))
    return model_sizes(full_directory(identity), ModelContents(config, table, {}))


def model_of(name: str) -> tuple[ModelSizes, Identity]:
    """A file, an artifact of the package, or a published artifact by alias or id, as plans see it.

    Raises UsageError for a bare word that is none of these, ArtifactError or ConfigError for a file
    that is not a whole model.
    """
    known = {*ALIASES, *(str(identity) for identity in IDENTITIES.values())}
    if name in known and not Path(name).exists():
        identity = IDENTITIES[find_published(name)[0].alias]
        return registered_sizes(identity), identity
    with open_artifact(locate(Path(name))) as artifact:
        contents = read_contents(artifact)
        return model_sizes(artifact.directory, contents), artifact.identity
