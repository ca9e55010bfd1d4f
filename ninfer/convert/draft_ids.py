"""Which token ids the draft head stands for: the most frequent ones of a count file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ninfer.errors import CheckpointError


def read_counts(path: Path, vocab_rows: int) -> Tensor:
    """Row 0 of a file of counts, int64 [vocab_rows].

    The file holds rows of `vocab_rows` little-endian 64-bit integers, raw or as a NumPy `.npy`
    array. Raises CheckpointError for another size, dtype, or a negative count.
    """
    try:
        array = _npy(path) if path.suffix == ".npy" else np.fromfile(path, dtype="<i8")
        size = path.stat().st_size
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    raw = path.suffix != ".npy"
    if array.size == 0 or array.size % vocab_rows or (raw and size % 8):
        raise CheckpointError(
            f"{path}: holds {array.size} counts; expected rows of {vocab_rows}, one for each row "
            "of the vocabulary"
        )
    counts = array.reshape(-1)[:vocab_rows]
    if (counts < 0).any():
        raise CheckpointError(f"{path}: id {int((counts < 0).argmax())} has a negative count")
    return torch.from_numpy(counts.astype(np.int64))


def _npy(path: Path) -> "np.ndarray[Any, np.dtype[np.int64]]":
    try:
        array = np.load(path, allow_pickle=False)
    except ValueError as error:
        raise CheckpointError(f"{path}: is not a NumPy array: {error}") from error
    if not isinstance(array, np.ndarray) or array.dtype != np.dtype("<i8"):
        raise CheckpointError(f"{path}: must hold 64-bit integers")
    return array


def special_ids(tokenizer_config: Mapping[str, Any]) -> list[int]:
    """Ids marked special in `added_tokens_decoder` of tokenizer_config.json, ascending."""
    added = tokenizer_config.get("added_tokens_decoder", {})
    return sorted(int(key) for key, token in added.items() if token.get("special") is True)


def choose_draft_ids(counts: Tensor, forced: list[int], addressable: int, rows: int) -> Tensor:
    """Token ids of a draft head of `rows` rows, most frequent first, int64 [rows].

    Ids 0..addressable - 1 are ordered by falling count and rising id; all `forced` ids are kept and
    the best others fill the rest. At equal counts the others stand before the forced ones. Raises
    CheckpointError when the ids do not suffice or a forced id cannot be addressed.
    """
    if any(not 0 <= token < addressable for token in forced):
        raise CheckpointError(
            f"special token {max(forced)} is not below {addressable}, the number of token ids"
        )
    if len(forced) > rows or rows > addressable:
        raise CheckpointError(
            f"a draft head of {rows} rows cannot hold {len(forced)} special tokens of {addressable}"
        )
    order = torch.sort(counts[:addressable], descending=True, stable=True).indices
    free = order[~torch.isin(order, torch.tensor(forced, dtype=torch.int64))]
    ids = torch.cat([free[: rows - len(forced)], torch.tensor(forced, dtype=torch.int64)])
    ids = ids[torch.sort(counts[ids], descending=True, stable=True).indices]
    assert ids.unique().numel() == rows, "each id is kept once"
    return ids
