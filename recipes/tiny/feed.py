"""An endless stream of training batches, made by worker processes."""

import random
from collections.abc import Iterator, Mapping
from typing import Final

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from recipes.tiny.batch import Batch, collate
from recipes.tiny.encode import Encoded, Encoder
from recipes.tiny.heldout import is_held_out
from recipes.tiny.mixture import task_makers

# Multiples of 64, the chunk of the delta rule. A sample is padded to the next one. None is 64: a
# batch of single chunks would be compiled apart.
LENGTHS: Final = (
    *(128, 192, 256, 320, 384, 512, 640, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 10_240),
)
# A picture costs much more than the tokens that it becomes.
MEDIA_SHARE: Final = 0.25


class Feed(IterableDataset[Batch]):
    """Batches of about `tokens` tokens, each of samples of one length class.

    Every worker draws its own samples, from `seed` and its number; samples that the held-out sets
    may hold are left out.
    """

    def __init__(self, mixture: Mapping[str, float], tokens: int, seed: int) -> None:
        self.mixture, self.tokens, self.seed = dict(mixture), tokens, seed

    def __iter__(self) -> Iterator[Batch]:
        info = get_worker_info()
        rng = random.Random(f"{self.seed}/{info.id if info else 0}")
        encoder, makers = Encoder(), task_makers()
        names, shares = list(self.mixture), list(self.mixture.values())
        waiting: dict[tuple[int, bool], list[Encoded]] = {}
        while True:
            sample = makers[rng.choices(names, shares)[0]](rng)
            if is_held_out(sample):
                continue
            encoded = encoder.encode(sample)
            length = next((n for n in LENGTHS if n >= len(encoded.ids)), None)
            if length is None:
                continue
            key = (length, bool(encoded.media))
            group = waiting.setdefault(key, [])
            group.append(encoded)
            if len(group) * length >= self.tokens * (MEDIA_SHARE if encoded.media else 1):
                yield collate(group, length)
                waiting[key] = []


def batches(mixture: Mapping[str, float], tokens: int, seed: int, workers: int) -> Iterator[Batch]:
    """Batches from `workers` processes (0: this one)."""
    loader = DataLoader(
        Feed(mixture, tokens, seed),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=4 if workers else None,
    )
    return iter(loader)
