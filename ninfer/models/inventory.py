"""What an artifact must hold: object specifications and the strict comparison with a directory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ninfer.artifact.directory import Directory, ResourceEntry, TensorEntry
from ninfer.errors import InventoryError

# A part that this version may not know in full: an unexpected object there is skipped.
OPTIONAL_PREFIXES = ("mtp/", "dflash/", "dflash2/", "vision/")
KNOWN_PREFIXES = ("text/", "frontend/", *OPTIONAL_PREFIXES)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor that must be there, with exactly this shape and stored format."""

    name: str
    shape: tuple[int, ...]
    format: str


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """A file that must be there as raw bytes."""

    name: str


ObjectSpec = TensorSpec | ResourceSpec


def check_inventory(directory: Directory, specs: Sequence[ObjectSpec]) -> list[str]:
    """Compare a directory with what the model needs; returns the names of skipped extra objects.

    Extra objects below the text or frontend prefix are errors, because a text model that ignores
    one would compute something else. Extra objects of optional components or of prefixes that this
    version does not know are returned, for the caller to report. Raises InventoryError that names
    the first missing, unexpected or differing object.
    """
    entries = {entry.name: entry for entry in directory.entries}
    for spec in specs:
        _check_object(spec, entries.get(spec.name))
    wanted = {spec.name for spec in specs}
    return list(_skipped(name for name in entries if name not in wanted))


def _check_object(spec: ObjectSpec, entry: TensorEntry | ResourceEntry | None) -> None:
    if entry is None:
        raise InventoryError(f"object {spec.name!r} is missing; the file is not this model whole")
    if isinstance(spec, ResourceSpec):
        if not isinstance(entry, ResourceEntry):
            raise InventoryError(f"object {spec.name!r} is a tensor; a resource is expected")
        return
    if not isinstance(entry, TensorEntry):
        raise InventoryError(f"object {spec.name!r} is a resource; a tensor is expected")
    if entry.shape != spec.shape:
        raise InventoryError(
            f"tensor {spec.name!r} has shape {list(entry.shape)}; expected {list(spec.shape)}"
        )
    if entry.format != spec.format:
        raise InventoryError(
            f"tensor {spec.name!r} has format {entry.format}; expected {spec.format}"
        )


def _skipped(extra: Iterable[str]) -> Iterable[str]:
    for name in extra:
        known = any(name.startswith(prefix) for prefix in KNOWN_PREFIXES)
        if known and not any(name.startswith(prefix) for prefix in OPTIONAL_PREFIXES):
            raise InventoryError(
                f"object {name!r} is not part of this model; nothing may be added under "
                f"{name.split('/', 1)[0]}/"
            )
        yield name
