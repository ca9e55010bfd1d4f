"""Host numbers to a device without waiting for it."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


def upload(values: np.ndarray[Any, Any], device: torch.device) -> Tensor:
    """The array as a tensor on the device; on a card the copy runs in the order of the stream."""
    made = torch.from_numpy(values)
    if device.type != "cuda":
        return made.to(device)
    # Torch keeps pinned memory until the copy has run; memory that is not pinned would wait.
    return made.pin_memory().to(device, non_blocking=True)
