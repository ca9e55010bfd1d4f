"""What stored numbers must be for a model to mean anything, beyond what their formats allow."""

from math import isfinite
from typing import Final

from torch import Tensor

from ninfer.artifact import Artifact
from ninfer.artifact.directory import TensorEntry
from ninfer.artifact.model_map import INPUT_DIVISOR
from ninfer.errors import PayloadError
from ninfer.models.config import ModelConfig
from ninfer.models.parameters import ParameterTable
from ninfer.models.qwen3_6.inventory import DIVISOR
from ninfer.models.stored_rows import StoredRows

_DRAFT_IDS: Final = "proposal/token_ids"


def check_draft_ids(artifact: Artifact, table: ParameterTable, config: ModelConfig) -> None:
    """Rows of a draft head must stand for different ids that the model addresses.

    Raises PayloadError that names the id.
    """
    if not config.draft_head_rows:
        return
    ids = StoredRows(artifact.tensor, table, [_DRAFT_IDS]).tensor(_DRAFT_IDS)
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= config.text.addressable:
        raise PayloadError(
            f"{_DRAFT_IDS} holds id {low if low < 0 else high}, outside "
            f"0..{config.text.addressable - 1}"
        )
    if ids.unique().numel() != ids.numel():
        raise PayloadError(f"{_DRAFT_IDS} holds an id twice")


def check_divisors(artifact: Artifact) -> int:
    """Every divisor of an NVFP4 input must be a finite number above 0; returns how many there are.

    Divisors are found by their names in v1 and v2, by the uses in v3. Raises PayloadError that
    names the first bad one.
    """
    names = _divisors(artifact)
    for name in names:
        stored = artifact.tensor(name)
        if not isinstance(stored, Tensor) or stored.numel() != 1:
            raise PayloadError(f"{name} must be one number, the divisor of an input")
        value = float(stored)
        if not (isfinite(value) and value > 0):
            raise PayloadError(f"{name} is {value}; it must be finite and greater than 0")
    return len(names)


def _divisors(artifact: Artifact) -> list[str]:
    model_map = artifact.directory.model_map
    if model_map is None:
        tensors = (e.name for e in artifact.directory.entries if isinstance(e, TensorEntry))
        return [name for name in tensors if name.endswith(f"/{DIVISOR}")]
    bound = (use.auxiliaries.get(INPUT_DIVISOR, ()) for use in model_map.uses)
    return list(dict.fromkeys(part.object for binding in bound for part in binding))
