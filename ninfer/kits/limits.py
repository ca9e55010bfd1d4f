"""Whether every kernel of a kit fits on its cards, by what the compilers report of each."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ninfer.errors import KitError
from ninfer.json_text import parse_json
from ninfer.ops.cubin import Resources, resources


@dataclass(frozen=True, slots=True)
class Needs:
    """The most that a kernel of a folder needs, and how many keep registers in memory."""

    kernels: int
    registers: int
    shared_bytes: int
    with_frame: int
    frame_bytes: int

    def facts(self) -> dict[str, object]:
        """Lines of a build record."""
        return {
            "most_registers": self.registers,
            "most_shared_bytes": self.shared_bytes,
            "kernels_with_local_memory": self.with_frame,
            "most_local_bytes": self.frame_bytes,
        }


def needs(folder: Path, architecture: int) -> Needs:
    """What the kernels below a folder need.

    Raises KitError naming the file, kernel and limit of one that no card of that architecture can
    start, or when there is none at all.
    """
    found = list(_all(folder))
    if not found:
        raise KitError(f"{folder}: holds no compiled kernel")
    for path, kernel in found:
        if over := kernel.excess(architecture):
            raise KitError(f"{path.relative_to(folder)}: sm_{architecture} does not have {over}")
    kernels = [kernel for _, kernel in found]
    frames = [kernel.frame_bytes for kernel in kernels]
    return Needs(
        len(kernels),
        max(kernel.registers for kernel in kernels),
        max(kernel.shared_bytes for kernel in kernels),
        sum(frame > 0 for frame in frames),
        max(frames),
    )


def _all(folder: Path) -> Iterator[tuple[Path, Resources]]:
    for path in sorted(folder.rglob("*.cubin")):
        for kernel in resources(path.read_bytes(), str(path)):
            yield path, replace(kernel, shared_bytes=kernel.shared_bytes + _at_launch(path))


def _at_launch(path: Path) -> int:
    """Shared memory that Triton's launches ask for, which its machine code does not tell."""
    metadata = path.with_suffix(".json")
    if not metadata.exists():
        return 0
    values = parse_json(metadata.read_text(encoding="utf-8"), str(metadata), KitError)
    return int(values["shared"])
