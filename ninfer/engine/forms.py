"""Which form of every op an engine runs, chosen once when it starts."""

import torch

from ninfer.errors import UsageError
from ninfer.ops.dispatch import REFERENCE, TRITON, forms_in_words, set_backend


def choose_forms(device: torch.device, backend: str) -> str:
    """Choose the form of every op for a device; gives the choice in words, for the log.

    Raises UsageError for kernels on a device that has none.
    """
    if backend != TRITON:
        set_backend(REFERENCE)
        return REFERENCE
    if device.type != "cuda":
        raise UsageError(f"--backend {backend}: kernels need a CUDA device, not {device}")
    major, minor = torch.cuda.get_device_capability(device)
    choice = set_backend(TRITON, 10 * major + minor)
    return f"{TRITON} for sm_{major}{minor} ({forms_in_words(choice)})"
