"""An endless stream of training batches, made by worker processes."""

import random
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from recipes.tiny.batch import Batch, pack, pad
from recipes.tiny.encode import Encoded, Encoder
from recipes.tiny.heldout import is_held_out
from recipes.tiny.mixture import task_makers


class Rows(NamedTuple):
    """Rows of one length, for samples of at most `longest` tokens."""

    length: int
    longest: int
    # No sample is shorter than this, or the starts of a batch would not fit.
    shortest: int

    def most_documents(self, rows: int) -> int:
        """Samples and paddings that a batch can hold."""
        return rows * (self.length // self.shortest + 1)


# Room for an answer that is longer than the reference.
_REST: Final = 64
# Few shapes, so that each is compiled and captured once.
ROWS: Final = (Rows(2048, 1024, 24), Rows(8192, 8192, 1024))


class Packer:
    """Fills rows of `rows.length` with samples until none has room for the next one."""

    def __init__(self, rows: Rows, tokens: int) -> None:
        self._rows, self._count = rows, tokens // rows.length
        self._clear()

    def _clear(self) -> None:
        self._filled: list[list[Encoded]] = [[] for _ in range(self._count)]
        self._room = [self._rows.length] * self._count

    def add(self, sample: Encoded) -> Batch | None:
        """Take a sample; the batch that it did not fit into, when there is one."""
        size = len(sample.ids)
        done = None
        if max(self._room) < size:
            most = self._rows.most_documents(self._count)
            done = pack(self._filled, self._rows.length, most)
            self._clear()
        row = next(i for i, room in enumerate(self._room) if room >= size)
        self._filled[row].append(sample)
        self._room[row] -= size
        return done


class Feed(IterableDataset[Batch]):
    """Packed batches of `tokens` tokens, each of one of the shapes of ROWS.

    Every worker draws its own samples, from `seed` and its number; samples that the held-out sets
    may hold are left out.
    """

    def __init__(self, mixture: Mapping[str, float], tokens: int, seed: int) -> None:
        self.mixture, self.tokens, self.seed = dict(mixture), tokens, seed

    def __iter__(self) -> Iterator[Batch]:
        packers = [Packer(rows, self.tokens) for rows in ROWS]
        for sample in samples(self.mixture, self.seed):
            size = len(sample.ids)
            fits = (i for i, r in enumerate(ROWS) if r.shortest <= size <= r.longest)
            chosen = next(fits, None)
            if chosen is not None and (batch := packers[chosen].add(sample)) is not None:
                yield batch


class Singles(IterableDataset[Batch]):
    """Batches of `rows` samples, each alone in a row of `length` tokens, with some to spare."""

    def __init__(self, mixture: Mapping[str, float], length: int, rows: int, seed: int) -> None:
        self.mixture, self.length, self.rows, self.seed = dict(mixture), length, rows, seed

    def __iter__(self) -> Iterator[Batch]:
        group: list[Encoded] = []
        for sample in samples(self.mixture, self.seed):
            if len(sample.ids) < self.length - _REST:
                group.append(sample)
            if len(group) == self.rows:
                yield pad(group, self.length)
                group = []


def samples(mixture: Mapping[str, float], seed: int) -> Iterator[Encoded]:
    """Samples that are not held out, drawn by the shares of `mixture`, apart for each worker."""
    info = get_worker_info()
    rng = random.Random(f"{seed}/{info.id if info else 0}")
    encoder, makers = Encoder(), task_makers()
    names, shares = list(mixture), list(mixture.values())
    while True:
        sample = makers[rng.choices(names, shares)[0]](rng)
        if not is_held_out(sample):
            yield encoder.encode(sample)


def batches(source: IterableDataset[Batch], workers: int) -> Iterator[Batch]:
    """Batches of `source` from `workers` processes (0: this one)."""
    loader = DataLoader(
        source,
        batch_size=None,
        num_workers=workers,
        prefetch_factor=4 if workers else None,
    )
    return iter(loader)
