"""One forward pass of the text model over a batch, and its logits."""

import torch
from torch import Tensor

from ninfer.models.config import ModelConfig
from ninfer.models.forward_batch import Caches, ForwardBatch
from ninfer.models.qwen3_6 import TextWeights, decode, logits
from ninfer.runtime.caches import allocate_caches
from ninfer.runtime.config import RuntimeConfig


class ModelRunner:
    """Owns the caches of one model and runs passes over them."""

    def __init__(self, weights: TextWeights, config: ModelConfig, runtime: RuntimeConfig) -> None:
        self._weights = weights
        self._config = config
        self._dtype = runtime.dtype
        self.caches: Caches = allocate_caches(config, runtime)

    @torch.inference_mode()
    def run(self, batch: ForwardBatch) -> Tensor:
        """Logits [R, vocab_rows] of `batch.logit_rows`; commits the batch to the caches."""
        hidden, _ = decode(self._weights, self._config.text, batch, self.caches, dtype=self._dtype)
        return logits(self._weights, hidden, batch.logit_rows)
