"""The v3 model map of a Qwen3.6 artifact whose objects are named and fused as in v2."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from ninfer.artifact.directory import Directory, ResourceEntry, TensorEntry
from ninfer.artifact.model_map import INPUT_DIVISOR, Binding, ModelMap, Part, Use
from ninfer.models.components import components_of
from ninfer.models.config import ModelConfig
from ninfer.models.inventory import TensorSpec
from ninfer.models.qwen3_6.inventory import DIVISOR
from ninfer.models.qwen3_6.parameters import stored_contents

_FRONTEND = "frontend"
# How far the input of a matrix may be rounded, by the format of the matrix.
_POLICY = {"NVFP4": "AllowA4", "FP8_E4M3FN_ROW_BF16S": "AllowA8"}


def model_map_of(directory: Directory, config: ModelConfig) -> ModelMap:
    """Components, bindings and uses that say in v3 what the object names of v2 say.

    Every matrix gets one use, named after the place of its input; the input divisor that follows an
    NVFP4 matrix becomes its auxiliary. The metadata has the public name and the weights id.
    """
    bindings: dict[str, Binding] = {}
    uses: list[Use] = []
    entries = list(directory.entries)
    following = [*entries[1:], None]
    for entry, after in zip(entries, following, strict=True):
        if not isinstance(entry, TensorEntry):
            continue
        found = dict(_bindings(entry, config))
        bindings.update(found)
        if len(entry.shape) == 2 and not entry.name.endswith("convolution"):
            divisor = after.name if after is not None and after.name.endswith(DIVISOR) else None
            uses += [_use(name, entry.format, divisor) for name in found]
    resources = {
        PurePosixPath(entry.name).stem: entry.name
        for entry in entries
        if isinstance(entry, ResourceEntry) and entry.name.startswith(f"{_FRONTEND}/")
    }
    identity = directory.identity
    return ModelMap(
        components_of(config, resources),
        bindings,
        tuple(uses),
        metadata={"name": identity.model_id, "weights_id": identity.weights_id},
    )


def _bindings(entry: TensorEntry, config: ModelConfig) -> Iterator[tuple[str, Binding]]:
    contents = stored_contents(TensorSpec(entry.name, entry.shape, entry.format), config)
    if len(contents) == 1:
        yield contents[0][0], (Part(entry.name),)
        return
    width = entry.shape[1] if len(entry.shape) > 1 else 1
    start = 0
    for name, rows in contents:
        stop = start + rows * width
        yield name, (Part(entry.name, (start, stop)),)
        start = stop


def _use(parameter: str, format: str, divisor: str | None) -> Use:
    auxiliaries = {} if divisor is None else {INPUT_DIVISOR: (Part(divisor),)}
    policy = _POLICY.get(format, "A16Only")
    return Use(parameter, _input_of(parameter), policy, auxiliaries)


def _input_of(parameter: str) -> str:
    """The activation that a matrix meets; all projections of one activation name the same."""
    place, _, leaf = parameter.rpartition("/")
    if leaf in ("down", "output"):
        return f"{parameter}_input"
    # Every expert of a layer reads the layer's one input.
    return f"{place.partition('/moe/')[0]}/moe/input" if "/moe/" in place else f"{place}/input"
