"""Objects by their v2 names, whatever the framing and the sharing of objects in the file."""

from ninfer.errors import InventoryError
from ninfer.models.config import ModelConfig
from ninfer.models.inventory import TensorSpec
from ninfer.models.parameters import ParameterTable
from ninfer.models.qwen3_6.inventory import inventory
from ninfer.models.qwen3_6.parameters import stored_contents
from ninfer.models.qwen3_6.recipe import recipe_for
from ninfer.models.stored_rows import ObjectSource, StoredRows
from ninfer.ops.tensors import StoredWeight


def named_source(source: ObjectSource, config: ModelConfig, table: ParameterTable) -> ObjectSource:
    """A source that answers to the object names of the groupwise v2 recipe.

    For drafters, whose objects are fused in one way in every v2 file: a v3 file may fuse them in
    another, and then the rows are put together here. The returned source raises InventoryError for
    a parameter that the file does not hold, or that is stored in another format than its
    neighbours in the same matrix.
    """
    contents = {
        spec.name: [name for name, _ in stored_contents(spec, config)]
        for spec in inventory(config, recipe_for(config, "groupwise-int"))
        if isinstance(spec, TensorSpec)
    }

    def named(name: str) -> StoredWeight:
        parameters = contents[name]
        for parameter in parameters:
            if parameter not in table:
                raise InventoryError(f"the artifact does not hold parameter {parameter!r}")
        return StoredRows(source, table, parameters).stored(*parameters)

    return named
