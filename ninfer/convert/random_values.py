"""Seeded random values for the objects of a synthetic artifact, in usual ranges."""

import hashlib
import math
from typing import Final

import torch
from torch import Tensor

from ninfer.models import ModelConfig, TensorSpec

# The logits of a random head, in standard deviations of a normal distribution.
_LOGIT_SPREAD: Final = 3.0


class RandomValues:
    """Values of each object, drawn from a generator of its own, so that order does not matter.

    The same seed and sizes give the same values on one kind of device.
    """

    def __init__(self, config: ModelConfig, seed: int, device: torch.device | None = None) -> None:
        self._config = config
        self._seed = seed
        self._device = device or torch.device("cpu")

    def of(self, spec: TensorSpec) -> Tensor:
        """Values of one object: sizes that keep activations and logits in a usual range.

        Float32 of the object's shape, int32 for token ids.
        """
        name, leaf = spec.name, spec.name.rsplit("/", 1)[-1]
        if name == "text/draft_head_token_ids":
            return self._draft_ids()
        if name == "text/draft_head":
            head = TensorSpec("text/output_head", self._head_shape(), spec.format)
            return self.of(head)[self._draft_ids().long()]
        noise = self._normal(name, spec.shape)
        if leaf == "a_log":
            # Decay rates between a few tokens and a few hundred.
            return noise.mul(1.5).sub(2.0)
        if (leaf == "norm" and "/gdn/" in name) or leaf == "weight":
            return noise.mul(0.1).add(1.0)
        if leaf == "base_kernel":
            # The newest tap passes its input on, as an untrained convolution does.
            kernel = noise.mul(0.1)
            kernel[:, 0] += 1.0
            return kernel
        if not spec.shape:
            return noise.mul(0.1).exp().mul(64.0)
        if len(spec.shape) == 1:
            return noise.mul(0.1)
        return noise.mul(self.spread(spec))

    def spread(self, spec: TensorSpec) -> float:
        """Standard deviation of the entries of a matrix."""
        leaf = spec.name.rsplit("/", 1)[-1]
        if leaf == "token_embedding":
            return 1.0
        if leaf in ("output_head", "draft_head"):
            return _LOGIT_SPREAD / math.sqrt(self._config.text.hidden)
        if leaf == "convolution":
            return float(spec.shape[0] ** -0.5)
        return float(spec.shape[1] ** -0.5)

    def generator(self, name: str) -> torch.Generator:
        """A generator that only depends on the seed and this object's name."""
        digest = hashlib.sha256(f"{self._seed}:{name}".encode()).digest()
        generator = torch.Generator(self._device)
        return generator.manual_seed(int.from_bytes(digest[:8], "little") >> 1)

    def _normal(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=self.generator(name), device=self._device)

    def _head_shape(self) -> tuple[int, int]:
        return self._config.text.vocab_rows, self._config.text.hidden

    def _draft_ids(self) -> Tensor:
        rows, ids = self._config.draft_head_rows, self._config.text.addressable
        order = self._normal("text/draft_head_token_ids", (ids,)).argsort()
        return order[:rows].sort().values.to(torch.int32)
