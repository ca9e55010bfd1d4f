"""What stored numbers must be for a model to mean anything, beyond what their formats allow."""

from math import isfinite
from typing import Final

from torch import Tensor

from ninfer.artifact import Artifact
from ninfer.artifact.directory import TensorEntry
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

    Raises PayloadError that names the first that is not.
    """
    names = [
        entry.name
        for entry in artifact.directory.entries
        if isinstance(entry, TensorEntry) and entry.name.endswith(f"/{DIVISOR}")
    ]
    for name in names:
        divisor = artifact.tensor(name)
        assert isinstance(divisor, Tensor), name
        value = float(divisor)
        if not (isfinite(value) and value > 0):
            raise PayloadError(f"{name} is {value}; it must be finite and greater than 0")
    return len(names)
