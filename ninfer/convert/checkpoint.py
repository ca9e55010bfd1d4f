"""Tensors of a Hugging Face checkpoint folder by name, mapped from its safetensors shards."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open
from torch import Tensor

from ninfer.errors import CheckpointError

INDEX_NAME: Final = "model.safetensors.index.json"
TEXT_PREFIX: Final = "model.language_model."


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """Where a tensor lies and what it is; `dtype` is spelled as in safetensors headers."""

    name: str
    path: Path
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"tensor {self.name!r} in {self.path}"


class Checkpoint:
    """The tensors of all shards of one folder.

    A checkpoint of the text model alone names its tensors `model.layers...`; they are known here by
    the names of the whole model, `model.language_model.layers...`.
    """

    def __init__(self, folder: Path) -> None:
        """Read the headers of all shards. Raises CheckpointError naming the file or tensor."""
        self.folder = folder
        self._open: dict[Path, Any] = {}
        self._shards, indexed = _shards(folder)
        found: dict[str, SourceTensor] = {}
        for shard in self._shards:
            for tensor in _header(shard):
                if tensor.name in found:
                    raise CheckpointError(f"{tensor} is also in {found[tensor.name].path}")
                found[tensor.name] = tensor
        for name, path in indexed.items():
            if name not in found or found[name].path != path:
                raise CheckpointError(f"{path} lacks tensor {name!r} that {INDEX_NAME} promises")
        self._tensors = _canonical(found)

    @property
    def names(self) -> Iterable[str]:
        """Names of all tensors."""
        return self._tensors.keys()

    def find(self, name: str) -> SourceTensor | None:
        """What is known of a tensor; None when there is none of that name."""
        return self._tensors.get(name)

    def read(self, name: str) -> Tensor:
        """A tensor, as a read-only view of its mapped shard where the library allows that."""
        tensor = self._tensors[name]
        if tensor.path not in self._open:
            self._open[tensor.path] = _opened(tensor.path)
        try:
            value: Tensor = self._open[tensor.path].get_tensor(tensor.name)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{tensor} cannot be read: {error}") from error
        return value

    def release(self) -> None:
        """Unmap all shards, so that pages read so far no longer count as memory of the process."""
        self._open.clear()

    def fingerprint(self) -> list[tuple[str, int, int]]:
        """Name, size and time of change of each shard: equal means the same source files."""
        stats = [(shard, shard.stat()) for shard in self._shards]
        return [(shard.name, stat.st_size, stat.st_mtime_ns) for shard, stat in stats]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises CheckpointError naming the file."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: is not JSON text: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: must hold a JSON object")
    return value


def _shards(folder: Path) -> tuple[list[Path], dict[str, Path]]:
    """Files in order, and for each tensor that an index names the file it must be in."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder; name one that holds a checkpoint")
    if not (folder / INDEX_NAME).exists():
        shards = sorted(folder.glob("*.safetensors"))
        if not shards:
            raise CheckpointError(f"{folder}: holds no .safetensors file")
        return shards, {}
    weight_map = read_json(folder / INDEX_NAME).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{folder / INDEX_NAME}: lacks the object 'weight_map'")
    indexed = {}
    for name, file in weight_map.items():
        if not isinstance(file, str) or Path(file).name != file:
            raise CheckpointError(f"{folder / INDEX_NAME}: {file!r} is not a file name")
        indexed[name] = folder / file
    shards = sorted(set(indexed.values()))
    for shard in shards:
        if not shard.is_file():
            raise CheckpointError(f"{shard}: is named in {INDEX_NAME} but is not there")
    return shards, indexed


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path}: is not a whole safetensors file ({error}); fetch it again"
        ) from error


def _header(path: Path) -> Iterable[SourceTensor]:
    shard = _opened(path)
    for name in shard.keys():  # noqa: SIM118  # the shard is no mapping and cannot be iterated
        part = shard.get_slice(name)
        yield SourceTensor(name, path, tuple(part.get_shape()), part.get_dtype())


def _canonical(found: Mapping[str, SourceTensor]) -> dict[str, SourceTensor]:
    if any(name.startswith(TEXT_PREFIX) for name in found):
        return dict(found)
    return {
        f"{TEXT_PREFIX}{name.removeprefix('model.')}"
        if name.startswith("model.") and not name.startswith("model.visual.")
        else name: tensor
        for name, tensor in found.items()
    }


class Sources:
    """The checkpoints that a conversion reads, and which of them is asked first for what.

    A quantised checkpoint (`main`) is the authority on the text model; everything else comes from
    the unquantised one (`base`) when that is given. Drafters are checkpoints of their own.
    """

    def __init__(self, main: Checkpoint, base: Checkpoint | None, drafter: Checkpoint | None):
        self.main, self.base, self.drafter = main, base, drafter

    def order(self, origin: str) -> list[Checkpoint]:
        """Checkpoints to ask, first one first; `origin` is "text", "other" or "drafter"."""
        match origin:
            case "text":
                found = [self.main, self.base]
            case "drafter":
                found = [self.drafter]
            case _:
                found = [self.base, self.main]
        return [checkpoint for checkpoint in found if checkpoint is not None]

    def holder(self, name: str, origin: str) -> Checkpoint | None:
        """The checkpoint that a tensor is taken from; None when no one has it."""
        for checkpoint in self.order(origin):
            if checkpoint.find(name) is not None:
                return checkpoint
        return None

    def all(self) -> list[Checkpoint]:
        """Each checkpoint once."""
        return [c for c in (self.main, self.base, self.drafter) if c is not None]

    def release(self) -> None:
        """Unmap the shards of all checkpoints."""
        for checkpoint in self.all():
            checkpoint.release()
