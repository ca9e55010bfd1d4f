"""One forward pass of the text model over a batch, its logits, and the encoding of media."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer.models.config import ModelConfig
from ninfer.models.forward_batch import Caches, ForwardBatch
from ninfer.models.qwen3_6 import TextWeights, VisionWeights, decode, encode_media, logits
from ninfer.request import Media
from ninfer.runtime.caches import allocate_caches
from ninfer.runtime.config import RuntimeConfig


@dataclass(frozen=True, slots=True)
class Pass:
    """What a forward pass gives."""

    logits: Tensor  # [R, vocab_rows] of the batch's wanted rows
    hidden: Tensor  # [T, hidden] after the final norm
    taps: list[Tensor]  # residual streams [T, hidden] after the tapped layers


class ModelRunner:
    """Owns the caches of one model and runs passes over them."""

    def __init__(
        self,
        weights: TextWeights,
        config: ModelConfig,
        runtime: RuntimeConfig,
        vision: VisionWeights | None = None,
    ) -> None:
        self._weights = weights
        self._vision = vision
        self._config = config
        self._device = runtime.device
        self._dtype = runtime.dtype
        self.caches: Caches = allocate_caches(config, runtime)

    @torch.inference_mode()
    def run(self, batch: ForwardBatch, taps: Sequence[int] = ()) -> Pass:
        """Run a batch and commit its rows to the caches, held ones excepted."""
        hidden, tapped = decode(
            self._weights, self._config.text, batch, self.caches, dtype=self._dtype, taps=taps
        )
        return Pass(logits(self._weights, hidden, batch.logit_rows), hidden, tapped)

    @torch.inference_mode()
    def head(self, hidden: Tensor) -> Tensor:
        """Logits [R, vocab_rows] of final-normed hidden states [R, hidden]."""
        return logits(self._weights, hidden, torch.arange(hidden.shape[0], device=hidden.device))

    @torch.inference_mode()
    def encode(self, media: Media) -> Tensor:
        """Rows [M, hidden] of one image or video; the vision tower must be loaded."""
        assert self._vision is not None and self._config.vision is not None
        patches = torch.from_numpy(media.patches).to(self._device)
        return encode_media(
            self._vision, self._config.vision, patches, media.grid, dtype=self._dtype
        )
